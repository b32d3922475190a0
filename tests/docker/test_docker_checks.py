"""A gang whose workers are containers checks in containers of its image before anything of a worker is created."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agents import AgentProcess, eventually
from tests.agent.fake_console import FakeConsole
from tests.docker.engine import Engine
from tests.docker.machines import contained, container_of, containers, join_docker
from wire.agent_messages import Exit
from wire.assignments import Assignment, Preflight

pytestmark = pytest.mark.docker

SECONDS = 60


@pytest.fixture
def agent(console: FakeConsole, engine: Engine, tmp_path: Path) -> Iterator[AgentProcess]:
    agent = join_docker(AgentProcess(console, tmp_path / "state"), engine).start()
    yield agent
    agent.clean()


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
    return number


def member(rank: int, phase: str, port: int) -> Assignment:
    preflight = Preflight(
        kind="links",
        meets=True,
        machines=("gpu-01", "gpu-01"),
        rank=rank,
        address="127.0.0.1",
        port=port,
        token="t",
    )
    leads = None if rank else port
    return contained(
        f"a{rank}", "echo started", phase=phase, rank=rank, preflight=preflight, rendezvous_port=leads
    )


def test_the_leader_is_reached_from_the_workers_containers(console, agent, engine, port) -> None:
    gang = (0, 1)
    console.want(*(member(rank, "prepare", port) for rank in gang))
    for rank in gang:
        console.wait(
            lambda rank=rank: (told := console.report(f"a{rank}")) and told.checkable_at,
            "it may check",
            SECONDS,
        )
    assert containers(engine) == [], "nothing is created yet"
    console.want(*(member(rank, "check", port) for rank in gang))
    for rank in gang:
        report = console.wait_state(f"a{rank}", "ready", seconds=SECONDS)
        checked = [note.text for note in report.notes if note.text.startswith("Leader's address checked")]
        assert [text.partition(" reached")[0] for text in checked] == [
            f"Leader's address checked: 127.0.0.1:{port}"
        ]
    assert containers(engine) == ["astraeus-a0", "astraeus-a1"], "nothing is left of the checks"
    console.want(*(member(rank, "start", port) for rank in gang))
    for rank in gang:
        assert console.wait_whole_log(f"a{rank}") == "started\n"
        assert console.report(f"a{rank}").exit == Exit(kind="exited", code=0)


def test_a_stop_in_the_middle_of_a_check_leaves_no_container(console, agent, engine, port) -> None:
    console.want(member(1, "prepare", port))
    console.wait(lambda: (told := console.report("a1")) and told.checkable_at, "it may check", SECONDS)
    console.want(member(1, "check", port))
    eventually(lambda: containers(engine) == ["astraeus-a1-check"], "it looks for its leader", SECONDS)
    console.want(member(1, "stop", port))
    assert console.wait_gone("a1", SECONDS).exit == Exit(
        kind="stopped", message="Stopped before it was started"
    )
    eventually(lambda: containers(engine) == [], "no container", SECONDS)


def test_a_check_whose_agent_is_killed_is_begun_anew(console, agent, engine, port) -> None:
    console.want(member(0, "prepare", port))
    console.wait(lambda: (told := console.report("a0")) and told.checkable_at, "it may check", SECONDS)
    console.want(member(0, "check", port))
    eventually(lambda: containers(engine) == ["astraeus-a0-check"], "the leader waits", SECONDS)
    first = container_of(engine, "a0-check")["Id"]
    agent.kill()
    agent.start()
    eventually(lambda: (new := container_of(engine, "a0-check")) and new["Id"] != first, "another", SECONDS)
    console.want(member(0, "stop", port))
    console.wait_gone("a0", SECONDS)
    eventually(lambda: containers(engine) == [], "no container", SECONDS)
