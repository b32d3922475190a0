"""Stops: signal, grace, SIGKILL, and orders that overtake each other."""

import time

import pytest

from tests.agent.agents import AgentProcess, alive, worker
from tests.agent.fake_console import FakeConsole
from wire.agent_messages import Exit

pytestmark = pytest.mark.processes

LOOP = "while :; do sleep 0.05; done"


def test_stop_signal_reaches_the_command(console: FakeConsole, agent: AgentProcess) -> None:
    script = f"trap 'echo saved; exit 5' USR1; echo up; {LOOP}"
    console.want(worker(script=script, stop_signal="SIGUSR1"))
    console.wait_log("a1", "up")
    console.want(worker(script=script, stop_signal="SIGUSR1", phase="stop"))
    assert console.wait_gone("a1").exit == Exit(kind="stopped", code=5)
    assert console.wait_whole_log("a1") == "up\nsaved\n"


def test_a_command_that_ignores_the_signal_is_killed_after_the_grace(
    console: FakeConsole, agent: AgentProcess
) -> None:
    script = f"trap '' TERM; echo up; {LOOP}"
    console.want(worker(script=script, stop_grace_seconds=0.5))
    console.wait_log("a1", "up")
    ordered = time.time()
    console.want(worker(script=script, stop_grace_seconds=0.5, phase="stop"))
    gone = console.wait_gone("a1")
    assert gone.exit == Exit(kind="stopped", code=137, signal=9)
    assert gone.ended_at is not None
    assert 0.5 <= gone.ended_at - ordered < 5
    assert [note.text for note in gone.notes][1:] == [
        "Stop ordered: SIGTERM sent, SIGKILL follows after 0.5 s",
        "Killed with SIGKILL after 0.5 s of grace",
    ]


def test_a_command_without_a_handler_ends_at_once(console: FakeConsole, agent: AgentProcess) -> None:
    """The kernel spares process 1 from such signals; nobody should wait 30 s for that."""
    console.want(worker(command="sleep", args=("1000",)))
    console.wait_state("a1", "running")
    ordered = time.monotonic()
    console.want(worker(command="sleep", args=("1000",), phase="stop"))
    assert console.wait_gone("a1").exit == Exit(kind="stopped", code=143, signal=15)
    assert time.monotonic() - ordered < 5


def test_the_whole_tree_dies(console: FakeConsole, agent: AgentProcess) -> None:
    script = f"trap '' TERM; setsid bash -c \"trap '' TERM; {LOOP}\" & echo up; {LOOP}"
    console.want(worker(script=script, stop_grace_seconds=0.2))
    console.wait_log("a1", "up")
    child = agent.record("a1")["child"]
    console.want(worker(script=script, stop_grace_seconds=0.2, phase="stop"))
    console.wait_gone("a1")
    assert not alive(child)


def test_stop_of_a_prepared_worker(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="echo never", phase="prepare"))
    console.wait_state("a1", "ready")
    console.want(worker(script="echo never", phase="stop"))
    gone = console.wait_gone("a1")
    assert gone.exit == Exit(kind="stopped")
    assert not (agent.directory("a1") / "started").exists()
    assert gone.log_size == 0


def test_stop_of_what_never_was_here(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(phase="stop"))
    assert console.wait_gone("a1").exit == Exit(kind="stopped", message="Stopped before it was started")
    assert not (agent.directory("a1") / "started").exists()


def test_a_late_start_changes_nothing(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="echo never", phase="prepare"))
    console.wait_state("a1", "ready")
    console.want(worker(script="echo never", phase="stop"))
    console.wait_gone("a1")
    console.want(worker(script="echo never", phase="start"), worker("a2", "echo other"))
    console.wait_whole_log("a2")
    gone = console.wait_gone("a1")
    assert gone.exit == Exit(kind="stopped")
    assert not (agent.directory("a1") / "started").exists()
    assert console.log("a1") == ""


@pytest.mark.parametrize("attempt", range(5))
def test_stop_on_the_heels_of_start(console: FakeConsole, agent: AgentProcess, attempt: int) -> None:
    """Wherever it catches the start, the worker ends as stopped, and nothing of it is left."""
    console.want(worker(phase="prepare", command="sleep", args=("1000",)))
    console.wait_state("a1", "ready")
    console.want(worker(command="sleep", args=("1000",)))
    time.sleep(attempt * 0.004)  # not a wait for something: it moves the stop along the start
    console.want(worker(command="sleep", args=("1000",), phase="stop"))
    gone = console.wait_gone("a1")
    assert gone.exit is not None
    assert gone.exit.kind == "stopped"
    assert not alive(agent.record("a1")["child"])
