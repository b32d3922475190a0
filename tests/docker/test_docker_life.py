"""Workers as containers: prepared behind the barrier, started once, stopped, adopted, and gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agents import AgentProcess, eventually
from tests.agent.fake_console import FakeConsole
from tests.docker.engine import Engine
from tests.docker.machines import contained, container_of, containers, join_docker
from wire.agent_messages import Exit
from wire.assignments import FileMount, Probe, Probes, Secret

pytestmark = pytest.mark.docker


@pytest.fixture
def agent(console: FakeConsole, engine: Engine, tmp_path: Path) -> Iterator[AgentProcess]:
    agent = join_docker(AgentProcess(console, tmp_path / "state"), engine).start()
    yield agent
    agent.clean()


def test_a_worker_waits_behind_the_barrier_runs_and_leaves_nothing(console, agent, engine) -> None:
    files = (FileMount(path="/app/said.txt", value="config\n"),)
    secrets = (
        Secret(name="file", path="/run/key", value="file-secret-value"),
        Secret(name="env", env="TOKEN", value="env-secret-value"),
    )
    script = (
        "cat /app/said.txt /run/key; echo; echo $TOKEN; id -u; hostname; df -k /dev/shm | tail -1; exit 3"
    )
    job = contained(script=script, files=files, secrets=secrets, user="1500", phase="prepare")
    console.want(job)
    report = console.wait_state("a1", "ready", seconds=60)
    assert [note.text for note in report.notes if "Locked memory" in note.text] != []
    found = container_of(engine, "a1")
    assert found["State"]["Status"] == "created"
    assert found["HostConfig"]["LogConfig"]["Type"] == "none"
    console.want(job.model_copy(update={"phase": "start"}))
    assert console.wait_gone("a1", seconds=60).exit == Exit(kind="exited", code=3)
    log = console.wait_whole_log("a1")
    assert log.startswith("config\n***\n***\n1500\ngpu-01\n")
    assert " 65536 " in log
    eventually(lambda: containers(engine) == [], "no container", 30)


def test_a_stop_reaches_the_command_and_sigkill_follows(console, agent, engine) -> None:
    script = "trap 'echo told' TERM; echo up; while :; do sleep 0.1; done"
    console.want(contained(script=script, stop_grace_seconds=1))
    console.wait_log("a1", "up\n", 60)
    console.want(contained(script=script, stop_grace_seconds=1, phase="stop"))
    report = console.wait_gone("a1", seconds=60)
    assert (report.exit.kind, report.exit.code, report.exit.signal) == ("stopped", 137, 9)
    assert console.wait_whole_log("a1") == "up\ntold\n"


def test_a_killed_agent_is_replaced_without_a_trace(console, agent, engine) -> None:
    console.want(contained(script="for i in $(seq 1 30); do echo line $i; sleep 0.1; done"))
    console.wait_log("a1", "line 3\n", 60)
    before = container_of(engine, "a1")["State"]["Pid"]
    agent.kill()
    agent.start()
    assert container_of(engine, "a1")["State"]["Pid"] == before
    assert console.wait_gone("a1", seconds=60).exit == Exit(kind="exited", code=0)
    assert console.wait_whole_log("a1") == "".join(f"line {i}\n" for i in range(1, 31))
    eventually(lambda: containers(engine) == [], "no container", 30)


def test_a_probe_runs_inside_the_container_as_the_worker(console, agent, engine) -> None:
    look = (
        "test $(id -u) = 1500 && test $ANSWER = 42 && test -e /tmp/up && ip -o link | grep -c . > /tmp/links"
    )
    probes = Probes(startup=Probe(exec=("bash", "-c", look), period_seconds=0.2, failure_threshold=100))
    script = (
        "touch /tmp/up; while [ ! -e /tmp/links ]; do sleep 0.1; done; cat /tmp/links; ip -o link | grep -c ."
    )
    console.want(contained(script=script, user="1500:1500", env={"ANSWER": "42"}, probes=probes))
    assert console.wait_gone("a1", seconds=60).exit == Exit(kind="exited", code=0)
    seen, own = console.wait_whole_log("a1").split()
    assert seen == own, "the probe is on the worker's network"


def test_what_cannot_be_executed_is_said_for_people(console, agent, engine) -> None:
    console.want(contained(command="nosuch"), contained("a2", user="nobody-here", phase="prepare"))
    end = console.wait_gone("a1", seconds=60).exit
    assert (end.kind, end.message) == ("not_started", "command not found: nosuch (in the image)")
    console.want(contained("a2", user="nobody-here"), contained("a3", working_dir="/proc/1/mem"))
    said = {name: console.wait_gone(name, seconds=60).exit for name in ("a2", "a3")}
    assert said["a2"].message == (
        "There is no user nobody-here in the image. Give a number, or leave `user` out."
    )
    assert said["a3"].kind in ("not_prepared", "not_started")
    eventually(lambda: containers(engine) == [], "no container", 30)
