"""What a broken or hostile client sends: it is told so, and nothing else suffers."""

import json

import pytest

from console.asgi import LARGEST_BODY
from machines.models import Machine
from tests import factories
from tests.support.console import credential_of, in_console, inventory, with_agent

PROBLEM = "application/problem+json"
WORKSPACE = "/api/v1/o/acme/w/vision"
GPU = {"index": 0, "uuid": "GPU-0", "product": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 * factories.GIB}
PORT = {
    "device": "mlx5_0",
    "port": 1,
    "link_layer": "InfiniBand",
    "state": "ACTIVE",
    "rate_gbps": 400,
    "subnet_manager": "0xa",
}
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def machine(house) -> Machine:
    return factories.machine_make(house, "gpu-01", gpus=0, fabric=None, rack=None)


def sync(machine: Machine, **fields) -> int:
    """The status of the answer to a request with these fields, `inventory` and `observed` merged in."""
    found = {**inventory().model_dump(), **fields.pop("inventory", {})}
    observed = {"inventory": found, **fields.pop("observed", {})}

    async def work(agent):
        agent.sequence = 7
        content = {**json.loads(agent.message()), "observed": observed, **fields}
        return await agent.client.post("/agent/v1/sync", headers=agent.headers, content=json.dumps(content))

    status: int = with_agent(credential_of(machine), work).status_code
    return status


@pytest.mark.parametrize(
    "fields",
    [
        {"inventory": {"cpu_cores": 2**40}},
        {"inventory": {"memory_bytes": 2**70}},
        {"inventory": {"labels": {"rack": "r" * 64}}},
        {"inventory": {"labels": {"r" * 254: "r1"}}},
        {"inventory": {"gpus": [{**GPU, "memory_bytes": 2**65}]}},
        {"inventory": {"gpus": [{**GPU, "numa_node": 2**15}]}},
        {"inventory": {"gpus": [{**GPU, "nvlink_domain": "d" * 81}]}},
        {"inventory": {"rdma_ports": [{**PORT, "subnet_manager": "s" * 81}]}},
        {"inventory": {"rdma_ports": [{**PORT, "netdev": "n" * 33}]}},
        # Two such ports of one machine would have stopped the placement of a whole cluster.
        {"inventory": {"rdma_ports": [{**PORT, "rate_gbps": 1e308}]}},
        {"observed": {"busy_ports": [10**30]}},
        {"observed": {"assignments": [{"id": "a", "state": "running", "log_size": 2**63}]}},
        {"observed": {"assignments": [{"id": "a", "state": "running", "started_at": 253_402_300_799}]}},
        {"sequence": 2**63},
        {"applied_revision": 2**63},
    ],
)
def test_what_no_column_can_hold_is_refused_and_not_a_crash(machine, fields):
    assert sync(machine, **fields) == 400
    assert sync(machine) == 200


def test_what_a_driver_lists_twice_is_there_once(machine):
    assert sync(machine, inventory={"gpus": [GPU, GPU], "rdma_ports": [PORT, PORT]}) == 200

    assert list(machine.gpus.values_list("uuid", flat=True)) == ["GPU-0"]
    assert list(machine.rdma_ports.values_list("device", "port")) == [("mlx5_0", 1)]


def test_what_agents_say_moves_no_cursor_and_turns_no_text_around(machine):
    found = {
        "gpus": [{**GPU, "evidence": "\x1b[2Jrow\u202e remap\n"}],
        "kernel": "6.1\x07",
        "limits": ["a\u2066b"],
    }
    assert sync(machine, inventory=found) == 200

    machine.refresh_from_db()
    assert machine.gpus.get().evidence == "\ufffd[2Jrow\ufffd remap\n"
    assert (machine.kernel, machine.limits) == ("6.1\ufffd", ["a\ufffdb"])


@pytest.mark.parametrize("path", ["/", f"{WORKSPACE}/runs", "/accounts/login/"])
def test_a_body_without_end_is_cut_off_before_it_fills_the_disk(house, path):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 1024 * 1024
            yield b" " * 1024 * 1024

    response = in_console(lambda client: client.post(path, content=endless()))

    assert (response.status_code, response.headers["content-type"]) == (413, PROBLEM)
    assert sent <= LARGEST_BODY + 2 * 1024 * 1024


@pytest.mark.parametrize("parameter", ["limit", "cursor"])
def test_a_number_of_thousands_of_digits_is_refused(house, api, parameter):
    response = api(house.bea).get(f"{WORKSPACE}/runs?{parameter}={'9' * 5000}")

    assert (response.status_code, response.headers["Content-Type"]) == (400, PROBLEM)


@pytest.mark.parametrize("method", ["HEAD", "POST", "DELETE"])
def test_live_streams_are_only_read(house, method):
    run = factories.run_pending(house)
    response = in_console(lambda client: client.request(method, f"/live/runs/{run.id}"))

    assert (response.status_code, response.headers["allow"]) == (405, "GET")
