"""The agent, its supervisors or the console end at the worst moment: nothing starts twice, nothing is lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent.desired_state import Applied, DesiredState
from tests.agent.agents import ROOT, AgentProcess, alive, eventually, worker
from tests.agent.fake_console import FakeConsole, Refusal
from wire.agent_messages import Exit
from wire.assignments import Desired

pytestmark = pytest.mark.processes

COUNT = "echo $BASHPID >> /dev/null; for i in $(seq 1 60); do echo line $i; sleep 0.02; done"
COUNTED = "".join(f"line {i}\n" for i in range(1, 61))
LOOP = "echo up; while :; do sleep 0.05; done"


def test_killed_agent_is_replaced_without_a_trace(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script=COUNT))
    console.wait_log("a1", "line 5\n")
    before = agent.record("a1")
    agent.kill()
    agent.start()
    assert console.wait_gone("a1").exit == Exit(kind="exited", code=0)
    assert console.wait_whole_log("a1") == COUNTED
    after = agent.record("a1")
    assert (after["child"], after["started_at"]) == (before["child"], before["started_at"])


def test_what_is_written_while_no_agent_runs_is_shipped(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script=COUNT))
    console.wait_log("a1", "line 5\n")
    agent.kill()
    eventually((agent.directory("a1") / "exit.json").exists, "the worker's end")
    agent.start()
    assert console.wait_gone("a1").exit == Exit(kind="exited", code=0)
    assert console.wait_whole_log("a1") == COUNTED


def test_sigterm_leaves_workers_running(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script=LOOP))
    console.wait_log("a1", "up")
    child = agent.record("a1")["child"]
    assert agent.terminate() == 0
    assert alive(child)
    agent.start()
    assert console.wait_state("a1", "running")
    assert agent.record("a1")["child"] == child


def test_agent_killed_between_prepare_and_start(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="echo once", phase="prepare"))
    console.wait_state("a1", "ready")
    prepared = agent.record("a1")["child"]
    agent.kill()
    console.want(worker(script="echo once"))
    agent.start()
    console.wait_gone("a1")
    assert console.wait_whole_log("a1") == "once\n"
    assert agent.record("a1")["child"] == prepared


def test_a_start_from_yesterday_waits_for_the_console(console: FakeConsole, agent: AgentProcess) -> None:
    """The agent died with the order to start in hand. By now the console may have started it elsewhere."""
    console.want(worker(script="echo once", phase="prepare"))
    console.wait_state("a1", "ready")
    agent.kill()
    port = console.stop()
    ordered = Applied(revision=2, desired=Desired(assignments=(worker(script="echo once"),)))
    DesiredState(agent.state / "desired.json").write(ordered)
    agent.launch()
    eventually(lambda: "no answer from the console" in agent.said(), "the first attempt to reach the console")
    supervisor = agent.record("a1")["supervisor"]
    assert (alive(supervisor), (agent.directory("a1") / "started").exists()) == (True, False)
    assert (agent.directory("a1") / "order").read_text().split() == ["wait", "0", "0"]

    console.want(worker(script="echo once"))
    console.start(port)
    assert console.wait_whole_log("a1") == "once\n"


@pytest.mark.parametrize("kills", [3])
def test_agent_killed_again_and_again(console: FakeConsole, agent: AgentProcess, kills: int) -> None:
    console.want(worker("a1", COUNT), worker("a2", COUNT))
    for _ in range(kills):
        agent.kill()
        agent.start()
    for name in ("a1", "a2"):
        assert console.wait_gone(name, 30).exit == Exit(kind="exited", code=0)
        assert console.wait_whole_log(name) == COUNTED


def test_stop_ordered_before_the_agent_died_is_carried_out_without_it(
    console: FakeConsole, agent: AgentProcess
) -> None:
    script = "trap '' TERM; " + LOOP
    console.want(worker(script=script, stop_grace_seconds=1))
    console.wait_log("a1", "up")
    child = agent.record("a1")["child"]
    console.want(worker(script=script, stop_grace_seconds=1, phase="stop"))
    console.wait_state("a1", "stopping")
    eventually(lambda: agent.record("a1")["phase"] == "stopping", "the stop at the supervisor")
    agent.kill()
    eventually(lambda: not alive(child), "SIGKILL after the grace")
    agent.start()
    assert console.wait_gone("a1").exit == Exit(kind="stopped", code=137, signal=9)


def test_killed_supervisor_takes_its_worker_along(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script=LOOP))
    console.wait_log("a1", "up")
    record = agent.record("a1")
    os.kill(record["supervisor"], signal.SIGKILL)
    gone = console.wait_gone("a1")
    assert gone.exit == Exit(
        kind="lost", message="The worker's supervisor was killed, and the worker with it."
    )
    assert not alive(record["child"])
    assert console.wait_whole_log("a1") == "up\n"


def test_supervisor_and_agent_killed_together(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script=LOOP))
    console.wait_log("a1", "up")
    record = agent.record("a1")
    agent.kill()
    os.kill(record["supervisor"], signal.SIGKILL)
    agent.start()
    gone = console.wait_gone("a1")
    assert gone.exit is not None
    assert gone.exit.kind == "lost"
    assert not alive(record["child"])


def test_supervisor_killed_before_the_start_is_replaced(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="echo once", phase="prepare"))
    console.wait_state("a1", "ready")
    first = agent.record("a1")
    os.kill(first["supervisor"], signal.SIGKILL)
    eventually(lambda: agent.record("a1")["supervisor"] != first["supervisor"], "another supervisor")
    assert not alive(first["child"])
    console.want(worker(script="echo once"))
    assert console.wait_gone("a1").exit == Exit(kind="exited", code=0)
    assert console.wait_whole_log("a1") == "once\n"


def test_killed_sandbox(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script=LOOP))
    console.wait_log("a1", "up")
    record = agent.record("a1")
    os.kill(record["bwrap"], signal.SIGKILL)
    assert console.wait_gone("a1").exit == Exit(kind="exited", code=137, signal=9)
    assert not alive(record["child"])


def test_the_spare_supervisor_ends_with_its_agent(console: FakeConsole, agent: AgentProcess) -> None:
    assert agent.process is not None
    children = psutil.Process(agent.process.pid).children
    spare = eventually(children, "the spare supervisor")[0].pid
    agent.kill()
    eventually(lambda: not alive(spare), "its end")


def test_a_killed_spare_supervisor_costs_nothing(console: FakeConsole, agent: AgentProcess) -> None:
    assert agent.process is not None
    spare = eventually(psutil.Process(agent.process.pid).children, "the spare supervisor")[0]
    spare.kill()
    console.want(worker(script="echo once"))
    assert console.wait_whole_log("a1") == "once\n"


def test_two_agents_on_one_directory(console: FakeConsole, agent: AgentProcess) -> None:
    command = [sys.executable, "-m", "agent", "run", "--state-dir", str(agent.state)]
    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 1
    assert second.stderr == (
        f"astraeus-agent: An agent already runs on {agent.state}. Stop it first, or use another --state-dir.\n"
    )


def test_console_away_while_a_worker_ends(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script=COUNT))
    console.wait_log("a1", "line 5\n")
    port = console.stop()
    eventually((agent.directory("a1") / "exit.json").exists, "the worker's end")
    console.start(port)
    assert console.wait_gone("a1", 40).exit == Exit(kind="exited", code=0)
    console.wait(lambda: console.log("a1") == COUNTED, "the whole log", 40)


def test_busy_console_is_left_in_peace(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script=LOOP))
    console.wait_log("a1", "up")
    console.refusal = Refusal(503, "Try again later.", retry_after="1")
    console.want(worker(script=LOOP, phase="stop"))
    console.refusal = None
    assert console.wait_gone("a1", 40).exit is not None


def test_unreadable_journal_entry_is_lost_and_the_others_go_on(
    console: FakeConsole, agent: AgentProcess
) -> None:
    console.want(worker("a1", LOOP), worker("a2", LOOP))
    console.wait_log("a1", "up")
    console.wait_log("a2", "up")
    damaged, healthy = agent.record("a1")["child"], agent.record("a2")["child"]
    agent.kill()
    (agent.directory("a1") / "assignment.json").write_text("{")
    (agent.state / "desired.json").write_text("{")
    agent.start()
    gone = console.wait_gone("a1", 40)
    assert gone.exit is not None
    assert (gone.exit.kind, gone.exit.message) == (
        "lost",
        "The agent's record of this worker can't be read: it is damaged.",
    )
    assert not alive(damaged)
    assert alive(healthy)
    assert console.wait_state("a2", "running")


def test_unreadable_journal_entry_is_mended_from_the_desired_state(
    console: FakeConsole, agent: AgentProcess
) -> None:
    console.want(worker("a1", LOOP))
    console.wait_log("a1", "up")
    child = agent.record("a1")["child"]
    agent.kill()
    (agent.directory("a1") / "assignment.json").write_text("{")
    agent.start()
    assert console.wait_state("a1", "running")
    assert agent.record("a1")["child"] == child


def test_boot_of_the_machine_loses_what_ran(console: FakeConsole, agent: AgentProcess) -> None:
    """As after a power cut: the marker is there, no process is, and the boot is another one."""
    console.want(worker(script=LOOP))
    console.wait_log("a1", "up")
    record = agent.record("a1")
    agent.kill()
    os.kill(record["supervisor"], signal.SIGKILL)
    launch = agent.directory("a1") / "launch"
    lines = [
        f"boot={'0' * 36}" if line.startswith("boot=") else line for line in launch.read_text().splitlines()
    ]
    launch.write_text("\n".join(lines) + "\n")
    agent.start()
    gone = console.wait_gone("a1")
    assert gone.exit == Exit(kind="lost", message="The machine was restarted while the worker ran.")
    assert console.log("a1") == "up\n"


@pytest.mark.parametrize("agent_too", [False, True], ids=["console away", "console and agent away"])
def test_a_worker_that_is_cut_off_is_stopped(
    console: FakeConsole, agent: AgentProcess, agent_too: bool
) -> None:
    """Its machine must not go on when the console may have started the next attempt elsewhere."""
    console.want(worker(script="trap 'echo told; exit 9' TERM; " + LOOP, stop_when_cut_off_seconds=3))
    console.wait_log("a1", "up")
    port = console.stop()
    if agent_too:
        agent.kill()
    eventually((agent.directory("a1") / "exit.json").exists, "the worker's end")
    console.start(port)
    if agent_too:
        agent.start()
    assert console.wait_gone("a1", 40).exit == Exit(kind="cut_off", code=9)
    console.wait(lambda: console.log("a1") == "up\ntold\n", "the whole log", 40)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_full_disk_costs_output_but_not_the_worker(console: FakeConsole, small_disk: Path) -> None:
    agent = AgentProcess(console, small_disk / "state").join().start()
    try:
        script = "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo still here >&2; exit 6"
        console.want(worker(script=script))
        gone = console.wait_gone("a1")
        assert gone.exit == Exit(kind="exited", code=6)
        assert gone.log_size < 3 << 20
        console.wait_whole_log("a1")
        console.want(worker(script=script), worker("a2", "true"))
        refused = console.wait_gone("a2")
        assert refused.exit is not None
        assert refused.exit.kind == "not_prepared"
        assert "No space left on device" in refused.exit.message
        console.want()
        console.wait(lambda: console.observed and not console.observed.assignments, "both forgotten")
        console.want(worker("a3", "echo room again"))
        assert console.wait_whole_log("a3") == "room again\n"
    finally:
        agent.clean()
