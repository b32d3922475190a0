"""The worker, its supervisor or the engine end at the worst moment: nothing starts twice, no container is left."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agents import AgentProcess, alive, eventually
from tests.agent.fake_console import FakeConsole
from tests.docker.engine import Engine
from tests.docker.machines import contained, container_of, containers, join_docker
from wire.assignments import DriveMount

pytestmark = pytest.mark.docker

LOOP = "echo up; while :; do sleep 0.1; done"


@pytest.fixture
def agent(console: FakeConsole, engine_to_kill: Engine, tmp_path: Path) -> Iterator[AgentProcess]:
    (tmp_path / "drives" / "count").mkdir(parents=True)
    agent = AgentProcess(console, tmp_path / "state")
    join_docker(agent, engine_to_kill, drive_roots=[str(tmp_path / "drives")]).start()
    yield agent
    agent.clean()


def counted(agent: AgentProcess, name: str, script: str = LOOP):
    """A worker that leaves a line on a drive each time that its command is executed."""
    source = str(agent.state.parent / "drives" / "count")
    mount = DriveMount(drive="count", source=source, mount_path="/count", read_only=False)
    return contained(name, f"echo x >> /count/{name}; {script}", mounts=(mount,))


def starts(agent: AgentProcess, name: str) -> int:
    file = agent.state.parent / "drives" / "count" / name
    return len(file.read_text().split()) if file.exists() else 0


def test_each_part_killed_while_workers_run(console, agent, engine_to_kill) -> None:
    engine = engine_to_kill
    names = ("command", "supervisor", "engine", "barrier")
    jobs = [counted(agent, name) for name in names[:3]]
    jobs.append(counted(agent, "barrier").model_copy(update={"phase": "prepare"}))
    console.want(*jobs)
    for name in names[:3]:
        console.wait_log(name, "up\n", 90)
    console.wait_state("barrier", "ready", seconds=60)

    os.kill(container_of(engine, "command")["State"]["Pid"], signal.SIGKILL)
    assert console.wait_gone("command", seconds=60).exit.code == 137

    pid = container_of(engine, "supervisor")["State"]["Pid"]
    os.kill(agent.record("supervisor")["supervisor"], signal.SIGKILL)
    assert console.wait_gone("supervisor", seconds=60).exit.kind == "lost"
    assert not alive(pid)

    pid = container_of(engine, "engine")["State"]["Pid"]
    engine.kill()
    time.sleep(1)  # the worker goes on without its engine; only the engine's return ends it
    assert alive(pid)
    engine.start()
    report = console.wait_gone("engine", seconds=90)
    assert (report.exit.kind, report.exit.message) == (
        "lost",
        "The Docker engine was restarted and ended the worker.",
    )
    assert not alive(pid)

    console.want(*(job.model_copy(update={"phase": "start"}) for job in jobs))
    console.wait_log("barrier", "up\n", 60)
    console.want()
    console.wait_gone("barrier", seconds=60)
    assert [starts(agent, name) for name in names] == [1, 1, 1, 1]
    eventually(lambda: containers(engine) == [], "no container", 30)


def test_an_engine_that_is_away_delays_the_end_and_starts_nothing_twice(
    console, agent, engine_to_kill
) -> None:
    """The agent, too, is killed; the new one finds what it knows of the journal, the rest waits for the engine."""
    engine = engine_to_kill
    job = counted(agent, "a1")
    console.want(job)
    console.wait_log("a1", "up\n", 90)
    engine.kill()
    agent.kill()
    agent.start()
    console.want(job.model_copy(update={"phase": "stop"}))
    assert console.wait_state("a1", "stopping", "ended", seconds=30)
    engine.start()
    assert console.wait_gone("a1", seconds=90).exit.kind == "stopped"
    assert starts(agent, "a1") == 1
    eventually(lambda: containers(engine) == [], "no container", 30)


def test_containers_of_a_forgotten_state_are_removed(console, agent, engine_to_kill) -> None:
    """Only its own: another agent on the same engine keeps its workers."""
    engine = engine_to_kill
    console.want(counted(agent, "a1"))
    console.wait_log("a1", "up\n", 90)
    client = engine.client()
    mine = {"io.astraeus.agent": str(agent.state), "io.astraeus.assignment": "gone"}
    client.api.create_container("astraeus-test:1", name="astraeus-gone", labels=mine)
    other = {"io.astraeus.agent": "/elsewhere", "io.astraeus.assignment": "other"}
    client.api.create_container("astraeus-test:1", name="astraeus-other", labels=other)
    client.close()
    agent.kill()
    agent.start()
    console.want(counted(agent, "a1"))
    eventually(lambda: containers(engine) == ["astraeus-a1", "astraeus-other"], "the left-over is gone", 30)
    assert console.report("a1").state == "running"


def test_a_drive_whose_path_is_changed_behind_the_barrier_is_the_one_that_was_looked_at(
    console, agent, engine_to_kill
) -> None:
    """Whoever may write to the drive has another worker see its own directory, not the machine's."""
    job = counted(agent, "a1", "ls /count; while [ ! -e /count/go ]; do sleep 0.1; done; ls /count")
    drives = agent.state.parent / "drives"
    (drives / "elsewhere").mkdir()
    console.want(job.model_copy(update={"phase": "prepare"}))
    console.wait_state("a1", "ready", seconds=90)
    (drives / "count").rename(drives / "moved")
    (drives / "count").symlink_to(drives / "elsewhere")
    console.want(job)
    console.wait_log("a1", "a1\n", 60)
    mounts = agent.state / "mounts"
    eventually(lambda: list(mounts.iterdir()) == [], "a started container needs no mount of ours", 30)
    (drives / "moved" / "go").touch()
    assert console.wait_gone("a1", seconds=60).exit.code == 0
    assert console.wait_whole_log("a1") == "a1\na1\ngo\n"
    assert list((drives / "elsewhere").iterdir()) == []
    assert sorted(path.name for path in (drives / "moved").iterdir()) == ["a1", "go"], "nothing is removed"
