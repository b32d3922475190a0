"""Gangs of two in containers on three machines, from the submission to the end, with the real console.

One console and three machines serve all tests here: they differ in their runs' names.
"""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests.docker.engine import Engine
from tests.docker.image import IMAGE
from tests.docker.machines import container_of, containers
from tests.docker.meshed import RANGE
from tests.docker.registry import Registry, Stalling
from tests.docker.training import PACKAGES, drives_make, met, started, steps, training
from tests.docker.whole import SECONDS, Machine, Whole, whole
from tests.e2e.documents import gang
from tests.e2e.world import World, eventually

pytestmark = [pytest.mark.docker, pytest.mark.processes, pytest.mark.timeout(1200)]

MACHINES = ("gpu-01", "gpu-02", "gpu-03")
FIRST_TWO = {"node_selection": {"mode": "Machines", "machines": list(MACHINES[:2])}}
CUT_SECONDS = 10
LONG_CUT_SECONDS = 300
MESH = IPv4Network(RANGE)

MEET = """
import os, socket, sys, time
leader, rank = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), os.environ["RANK"]
if rank == "0":
    peer, _ = socket.create_server(("", leader[1])).accept()
else:
    until = time.monotonic() + 60
    while True:
        try:
            peer = socket.create_connection(leader, 5)
            break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.05)
peer.sendall(f"hello from {rank} on {socket.gethostname()}\\n".encode())
print(peer.makefile().readline(), end="", flush=True)
while os.environ.get("STAY") and not os.path.exists("/go"):
    time.sleep(0.1)
"""


def meeting(name: str, image: str = IMAGE, script: str = f"exec python3 -c '{MEET}'"):
    document = gang(name, script, image=image)
    template = document["spec"]["task_template"]
    template["env"] = {"MASTER_PORT": "29500"}
    template["requested_resources"] |= FIRST_TWO
    return document


@pytest.fixture(scope="module")
def site_whole(tmp_path_factory) -> Iterator[Whole]:
    root = tmp_path_factory.mktemp("whole")
    drives = root / "drives"
    (drives / "starts").mkdir(parents=True)
    with whole(root, MACHINES, (PACKAGES, drives)) as found:
        drives_make(found, drives / "starts")
        yield found


@pytest.fixture
def here(site_whole: Whole) -> Iterator[Whole]:
    """Afterwards the test's runs are gone, and no container is left on any machine."""
    yield site_whole
    site_whole.world.clean(seconds=SECONDS)
    eventually(lambda: site_whole.containers() == {}, site_whole.containers, SECONDS)


def test_a_gang_meets_is_adopted_and_goes_back_where_an_image_is_missing(here, tmp_path) -> None:
    world, machines = here.world, here.machines
    name = world.submit(meeting("meet"))
    world.wait(name, "Succeeded", seconds=SECONDS)
    assert world.whole_log("meet-0") == "hello from 1 on gpu-02\n"
    assert world.whole_log("meet-1") == "hello from 0 on gpu-01\n"
    assert world.assignments(name) == [(1, "meet-0", "gpu-01"), (1, "meet-1", "gpu-02")]

    stays = meeting("stays")
    stays["spec"]["task_template"]["env"]["STAY"] = "1"
    name = world.submit(stays)
    eventually(lambda: world.log("stays-1").count("\n") == 1, "it has met the other", SECONDS)
    machines["gpu-02"].kill_agent()
    machines["gpu-02"].start_agent()
    world.stop(name, seconds=SECONDS)
    assert world.whole_log("stays-0") == "hello from 1 on gpu-02\n"
    assert [attempt for attempt, _, _ in world.assignments(name)] == [1, 1]

    name = world.submit(meeting("lacks", "127.0.0.1:9/nosuch:1"))
    told = partial(_tells, world, name, "The image 127.0.0.1:9/nosuch:1 can't be pulled on")
    eventually(told, lambda: world.history(name), SECONDS)
    _a_member_that_cannot_pull(here, tmp_path)


def test_a_training_goes_on_through_faults_and_nothing_starts_twice(here) -> None:
    """It meets on the mesh in both ways; then an agent, a cable, a container, an engine and a machine go away."""
    world = here.world
    name = world.submit(training("train", steps=inf, on_failure="RestartJob"))
    leader, member = _running(here, name, attempt=1)
    ways = met(world.log("train-1"))
    assert ways["MASTER_ADDR"] == (leader.space.address, 3)
    address, total = ways["name"]
    assert (IPv4Address(address) in MESH, total) == (True, 3), "the leader's own address on the mesh"
    assert met(world.log("train-0")) == ways

    _survives_its_agent(here, member)
    _survives_a_short_cut(here, member)
    assert world.status(name)["attempt"] == 1, world.history(name)

    os.kill(_container(member)["State"]["Pid"], signal.SIGKILL)
    _, member = _restarted(here, name, attempt=2)
    _ends_with_its_engine(here, member)
    _, member = _restarted(here, name, attempt=3)
    _is_replaced_when_cut_off(here, name, member)

    world.stop(name, seconds=SECONDS)
    for worker in ("train-0", "train-1"):
        assert started(here, worker) == [1, 2, 3, 4], "once in each attempt"
        assert all(steps(world.log(worker, attempt=attempt)) > 0 for attempt in (1, 2, 3, 4))
    attempts = [attempt for attempt, _, _ in world.assignments(name)]
    assert attempts == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_training_meets_on_the_machines_network_where_one_has_no_mesh(here, tmp_path) -> None:
    machine, machines = here.machines["gpu-03"], MACHINES[1:]
    machine.kill_agent()
    machine.start_agent(PATH=str(tmp_path))  # an empty directory: WireGuard isn't installed
    off = "SELECT 1 FROM machines_machine WHERE name = 'gpu-03' AND mesh_key = ''"
    eventually(lambda: here.world.sql(off), "gpu-03 has no mesh", SECONDS)
    name = here.world.submit(training("flat", steps=3, machines=machines))
    here.world.wait(name, "Succeeded", seconds=SECONDS)
    [leader, _] = [machine for _, _, machine in here.world.assignments(name)]
    address = here.machines[leader].space.address
    for worker in ("flat-0", "flat-1"):
        log = here.world.whole_log(worker)
        assert met(log) == {"MASTER_ADDR": (address, 3), "name": (address, 3)}
        assert (steps(log), started(here, worker)) == (3, [1])
    machine.kill_agent()
    machine.start_agent()
    here.wait_ready("gpu-03")


def _running(here: Whole, name: str, *, attempt: int) -> tuple[Machine, Machine]:
    """The leader's machine and the other's, once the attempt makes steps."""
    here.world.wait(name, "Running", attempt=attempt, seconds=SECONDS)
    _goes_on(here, name)
    leader, member = [machine for number, _, machine in here.world.assignments(name) if number == attempt]
    return here.machines[leader], here.machines[member]


def _goes_on(here: Whole, name: str) -> None:
    """Both members make steps together, and the leader's reach the console."""
    before = steps(here.world.log(f"{name}-0"))
    eventually(lambda: steps(here.world.log(f"{name}-0")) > before + 3, "it makes steps", SECONDS)


def _restarted(here: Whole, name: str, *, attempt: int) -> tuple[Machine, Machine]:
    here.world.wait(name, "Pending", attempt=attempt - 1, seconds=SECONDS)
    here.world.skip_backoff(name)
    return _running(here, name, attempt=attempt)


def _container(machine: Machine) -> dict[str, Any]:
    """Of its only worker."""
    [name] = containers(machine.engine)
    found = container_of(machine.engine, name.removeprefix("astraeus-"))
    assert found is not None
    return found


def _survives_its_agent(here: Whole, machine: Machine) -> None:
    before = _container(machine)
    machine.kill_agent()
    _goes_on(here, "train")
    machine.start_agent()
    seen = steps(here.world.log("train-1"))
    eventually(lambda: steps(here.world.log("train-1")) > seen + 3, "its log is shipped again", SECONDS)
    after = _container(machine)
    assert (after["Id"], after["State"]["Pid"]) == (before["Id"], before["State"]["Pid"]), "it was adopted"


def _survives_a_short_cut(here: Whole, machine: Machine) -> None:
    machine.space.plug(connected=False)
    cut_at = time.monotonic()
    eventually(lambda: time.monotonic() - cut_at > CUT_SECONDS, "so long without a cable", 2 * CUT_SECONDS)
    machine.space.plug(connected=True)
    _goes_on(here, "train")


def _ends_with_its_engine(here: Whole, machine: Machine) -> None:
    """The worker goes on without its engine; one that comes back ends what it finds."""
    machine.engine.kill()
    _goes_on(here, "train")
    machine.engine.start()


def _is_replaced_when_cut_off(here: Whole, name: str, machine: Machine) -> None:
    """The gang starts anew without the machine, whose worker is stopped as soon as it is back."""
    machine.space.plug(connected=False)
    here.silent_for(machine.name, LONG_CUT_SECONDS)
    others = _restarted(here, name, attempt=4)
    assert machine.name not in {other.name for other in others}
    assert containers(machine.engine) != [], "nobody could tell it yet"
    machine.space.plug(connected=True)
    eventually(lambda: containers(machine.engine) == [], "the old worker is gone", SECONDS)
    here.wait_ready(machine.name)
    _goes_on(here, name)


def _a_member_that_cannot_pull(here: Whole, directory: Path) -> None:
    """gpu-01 has the image, gpu-02's pull stands still: the barrier's time is over, and all go back."""
    world, machines = here.world, here.machines
    registry = Registry(machines["gpu-02"].space, directory).start()
    try:
        registry.push(machines["gpu-02"].engine)
        with Stalling(machines["gpu-02"].space, registry.port, port=5900) as stalling:
            image = registry.image.replace(registry.host, stalling.host)
            _tag(machines["gpu-01"].engine, image)
            name = world.submit(meeting("stuck", image))
            stalling.wait()
            eventually(lambda: _states(world, name) == {"ready", "preparing"}, "one of two is ready", SECONDS)
            late = "UPDATE runs_assignment SET ready_at = ready_at - interval '15 min' WHERE ready_at IS NOT NULL"
            world.sql(late)
            reason = "Gang barrier timed out waiting for all members"
            told = partial(_tells, world, name, reason)
            eventually(told, lambda: world.history(name), SECONDS)
    finally:
        registry.stop()


def _tells(world: World, name: str, text: str) -> bool:
    return any(text in said for _, _, said in world.history(name))


def _states(world: World, name: str) -> set[str]:
    return {worker["state"].lower() for worker in world.status(name)["workers"]}


def _tag(engine: Engine, name: str) -> None:
    client = engine.client()
    client.images.get(IMAGE).tag(*name.rsplit(":", 1))
    client.close()
