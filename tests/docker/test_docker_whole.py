"""A gang of two in containers on two machines, from the submission to the end, on the machines' own network."""

from functools import partial
from pathlib import Path

import pytest

from tests.docker.engine import Engine
from tests.docker.image import IMAGE
from tests.docker.machines import containers
from tests.docker.registry import Registry, Stalling
from tests.docker.whole import Whole, whole
from tests.e2e.documents import gang
from tests.e2e.world import World, eventually

pytestmark = [pytest.mark.docker, pytest.mark.processes]
SECONDS = 120

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


def meeting(name: str, **more: object):
    document = gang(name, f"exec python3 -c '{MEET}'", image=IMAGE, **more)
    document["spec"]["task_template"]["env"] = {"MASTER_PORT": "29500"}
    return document


def test_a_gang_meets_is_adopted_and_goes_back_where_an_image_is_missing(site, tmp_path) -> None:
    with whole(tmp_path, site, ("gpu-01", "gpu-02")) as here:
        world, machines = here.world, here.machines
        name = world.submit(meeting("meet"))
        world.wait(name, "Succeeded", seconds=SECONDS)
        assert world.whole_log("meet-0") == "hello from 1 on gpu-02\n"
        assert world.whole_log("meet-1") == "hello from 0 on gpu-01\n"
        assert world.assignments(name) == [(1, "meet-0", "gpu-01"), (1, "meet-1", "gpu-02")]

        stays = meeting("stays")
        stays["spec"]["task_template"]["env"]["STAY"] = "1"
        name = world.submit(stays)
        world.wait_lines("stays-1", 1)
        machines["gpu-02"].kill_agent()
        machines["gpu-02"].start_agent()
        world.stop(name)
        assert world.whole_log("stays-0") == "hello from 1 on gpu-02\n"
        assert [attempt for attempt, _, _ in world.assignments(name)] == [1, 1]

        name = world.submit(gang("lacks", "true", image="127.0.0.1:9/nosuch:1"))
        told = partial(_tells, world, name, "The image 127.0.0.1:9/nosuch:1 can't be pulled on")
        eventually(told, lambda: world.history(name), SECONDS)
        _a_member_that_cannot_pull(here, tmp_path)
        world.clean()
        for machine in machines.values():
            eventually(partial(_empty, machine.engine), "no container", SECONDS)


def _a_member_that_cannot_pull(here: Whole, directory: Path) -> None:
    """gpu-01 has the image, gpu-02's pull stands still: the barrier's time is over, and all go back."""
    world, machines = here.world, here.machines
    registry = Registry(machines["gpu-02"].space, directory).start()
    try:
        registry.push(machines["gpu-02"].engine)
        with Stalling(machines["gpu-02"].space, registry.port, port=5900) as stalling:
            image = registry.image.replace(registry.host, stalling.host)
            _tag(machines["gpu-01"].engine, image)
            name = world.submit(gang("stuck", "true", image=image))
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


def _empty(engine: Engine) -> bool:
    return containers(engine) == []
