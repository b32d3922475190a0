"""What checks before the start are made of: links judged from an inventory, the meeting, the verdict."""

import socket
import threading
from typing import Any

import pytest
import torch

from agent.preflight.job import answer_of, program_of
from agent.preflight.links import links_flaws, links_text
from agent.preflight.within.look import look
from agent.preflight.within.measure import bandwidth
from agent.preflight.within.meet import meet
from agent.preflight.within.verdict import verdict_of
from agent.runtime import Ran
from tests.agent.agents import worker
from wire.assignments import Preflight
from wire.inventory import Inventory

GANG = ("gpu-01", "gpu-02", "gpu-03")
GPU = {"index": 3, "uuid": "GPU-a", "product": "H100", "memory_bytes": 1}
PORT = {"device": "mlx5_0", "port": 1, "link_layer": "InfiniBand", "state": "ACTIVE", "rate_gbps": 400}


def preflight(**more: Any) -> Preflight:
    facts = {"kind": "links", "machines": GANG, "rank": 0, "address": "10.20.0.11", "port": 29500}
    return Preflight.model_validate({**facts, "rdma_ports": {"mlx5_0:1": 400}, **more})


def flaws(gpu: dict[str, Any] | None = None, port: dict[str, Any] | None = None, **more: Any) -> list[str]:
    gpus = () if gpu is None else (GPU | gpu,)
    ports = () if port is None else (PORT | port,)
    inventory = Inventory.model_validate(
        {"cpu_cores": 1, "memory_bytes": 1, "gpus": gpus, "rdma_ports": ports, **more}
    )
    return links_flaws(worker(gpu_uuids=("GPU-a",), imex=more.get("imex", False)), preflight(), inventory)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"gpu": {}, "port": {}}, []),
        ({"gpu": {"health": "suspect"}, "port": {}}, []),
        (
            {"gpu": {"health": "faulty", "evidence": "XID 79"}, "port": {"state": "DOWN"}},
            ["GPU 3 is faulty (XID 79)", "RDMA port mlx5_0:1 is DOWN"],
        ),
        (
            {"gpu": {}, "port": {"state": "INIT", "physical_state": "LinkUp"}},
            ["RDMA port mlx5_0:1 is INIT (LinkUp)"],
        ),
        (
            {"gpu": {}, "port": {"rate_gbps": 200}},
            ["RDMA port mlx5_0:1 is up at 200 Gb/s only, 400 Gb/s when the run was placed"],
        ),
        ({}, ["GPU GPU-a is no longer there", "RDMA port mlx5_0:1 is no longer there"]),
        ({"gpu": {}, "port": {}, "gpus_as_of": 1.0}, ["the GPUs' driver doesn't answer"]),
        ({"gpu": {}, "port": {}, "imex": True}, ["GPU 3 is in no NVLink domain any more"]),
        (
            {
                "gpu": {},
                "port": {},
                "checks": ({"what": "fabric manager", "verdict": "missing", "found": "off"},),
            },
            ["fabric manager: off"],
        ),
    ],
)
def test_links_are_judged_by_what_the_machine_has_now(found: dict[str, Any], said: list[str]) -> None:
    assert flaws(**found) == said


def test_what_was_found_well_is_told() -> None:
    ports = preflight(rdma_ports={f"mlx5_{number}:1": 400 for number in range(8)})
    assert links_text(worker(gpu_uuids=("a", "b")), ports) == "2 GPUs healthy, 8 RDMA ports up at 400 Gb/s"


def figures(*gbytes: float, pairs: tuple[tuple[int, int, float], ...] = ()) -> dict[int, dict[str, Any]]:
    return {
        rank: {"gbytes": each, "pairs": [pair for pair in pairs if rank in pair[:2]]}
        for rank, each in enumerate(gbytes)
    }


SLOW = figures(20, 20, 20, pairs=((0, 1, 360), (1, 2, 20), (2, 0, 20)))
REFUSED = {"error": "ncclInvalidUsage: no network named IB"}
SAID_LATER = {"error": "Connection closed by peer [10.0.0.2]:4711"}


@pytest.mark.parametrize(
    ("results", "ok", "text", "machines"),
    [
        (
            figures(356.2, 356.2, 356.2),
            True,
            "356 GB/s bus bandwidth over 24 GPUs on 3 machines, at least 200 GB/s expected",
            [],
        ),
        (
            SLOW,
            False,
            "20 GB/s bus bandwidth over 24 GPUs on 3 machines, at least 200 GB/s expected; slow: gpu-03",
            ["gpu-03"],
        ),
        (
            figures(20, 20, 20, pairs=((0, 1, 360), (1, 2, 20), (2, 0, 360))),
            False,
            "20 GB/s bus bandwidth over 24 GPUs on 3 machines, at least 200 GB/s expected; slow: gpu-02, gpu-03",
            ["gpu-02", "gpu-03"],
        ),
        ({0: SAID_LATER, 2: SAID_LATER}, False, "gpu-02 left the check", ["gpu-02"]),
        ({0: SAID_LATER, 1: REFUSED}, False, f"gpu-02: {REFUSED['error']}", ["gpu-02"]),
        (
            {0: SAID_LATER, 1: SAID_LATER, 2: SAID_LATER},
            False,
            "; ".join(f"{machine}: {SAID_LATER['error']}" for machine in GANG),
            list(GANG),
        ),
    ],
)
def test_one_verdict_says_whose_fault_it_is(
    results: dict[int, dict[str, Any]], ok: bool, text: str, machines: list[str]
) -> None:
    verdict = verdict_of(GANG, results, (8, 8, 8), 200.0, "GPUs")
    assert verdict == {"ok": ok, "text": text, "machines": machines}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def job(rank: int, port: int, **more: Any) -> dict[str, Any]:
    facts = {"machines": GANG[:2], "rank": rank, "address": "127.0.0.1", "port": port, "token": "t"}
    return {**facts, "measure": False, "join_seconds": 20, "seconds": 20, "processes": 1, "gbytes": 0, **more}


def test_members_meet_whoever_comes_first_and_strangers_are_none() -> None:
    port, found = free_port(), {}
    follower = threading.Thread(target=lambda: found.update(meet(job(1, port))))
    follower.start()
    stranger = threading.Thread(target=lambda: meet(job(1, port, token="another", seconds=1)))
    stranger.start()
    led = meet(job(0, port))
    for thread in (follower, stranger):
        thread.join()
    assert led["text"].startswith(f"127.0.0.1:{port} reached by all within ")
    assert found == led


def test_a_member_that_does_not_come_is_named() -> None:
    port = free_port()
    assert meet(job(0, port, join_seconds=0.2)) == {
        "ok": False,
        "text": f"gpu-02 did not reach the leader gpu-01 at 127.0.0.1:{port} within 0.2 s",
        "machines": ["gpu-02"],
    }
    alone = meet(job(1, port, join_seconds=0.2))
    assert alone["text"] == (
        f"the leader gpu-01 can't be reached from gpu-02 at 127.0.0.1:{port}: Connection refused"
    )
    assert alone["machines"] == ["gpu-02"]


def test_a_worker_without_what_it_was_placed_for_is_told_so() -> None:
    told = look({"rdma_devices": ["mlx5_0"], "gpus": 8, "shm_bytes": 1 << 60})
    rdma, gpus, shm = told["text"].split("; ")[-3:]
    assert not told["ok"]
    assert "libibverbs" in rdma or "RDMA" in told["text"]
    assert gpus.endswith("of 8 GPU devices are there")
    assert shm.startswith("/dev/shm has ")


def test_rdma_never_falls_back_to_tcp() -> None:
    program = program_of(
        worker(gpu_uuids=("GPU-a",), rdma=True), preflight(kind="allreduce"), "meet", simulated=False
    )
    [told] = program.environment.values()
    assert '"variables": {"NCCL_NET": "IB"}' in told
    assert '"backend": "nccl"' in told
    assert '"gbytes": 50.0' in told


def test_one_process_alone_reduces_too_so_that_a_broken_nccl_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reduced: list[Any] = []
    monkeypatch.setattr("torch.distributed.all_reduce", lambda data, **_: reduced.append(data))
    data = torch.ones(4)
    assert bandwidth(data, None, size=1, rounds=3) == 0.0
    assert reduced
    assert all(each is data for each in reduced)


@pytest.mark.parametrize(
    ("ran", "text"),
    [
        (
            Ran(code=127, output="sh: 1: exec: python: not found\n"),
            "the image has no Python, which the check needs; leave the check out with `preflight`: `none`",
        ),
        (Ran(timed_out=True), "it didn't end in time on gpu-01"),
        (Ran(code=1, output="bwrap: no room\n"), "bwrap: no room"),
        (Ran(error="it was killed"), "it was killed"),
    ],
)
def test_a_program_that_says_nothing_has_failed(ran: Ran, text: str) -> None:
    answer = answer_of(ran, "gpu-01")
    assert (answer.ok, answer.text) == (False, text)
