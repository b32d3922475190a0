"""One worker's life, with a real agent and a real sandbox."""

from typing import Any

import pytest

from tests.agent.agents import AgentProcess, alive, eventually, worker
from tests.agent.fake_console import FakeConsole
from wire.agent_messages import Exit

pytestmark = pytest.mark.processes


def test_prepared_then_started_then_ended(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="echo hello; exit 3", phase="prepare"))
    ready = console.wait_state("a1", "ready", "ended")
    assert (ready.state, ready.started_at, ready.exit) == ("ready", None, None)
    assert not (agent.directory("a1") / "started").exists()

    console.want(worker(script="echo hello; exit 3"))
    gone = console.wait_gone("a1")
    assert gone.exit == Exit(kind="exited", code=3)
    assert ready.ready_at is not None
    assert gone.started_at is not None
    assert gone.ended_at is not None
    assert ready.ready_at <= gone.started_at <= gone.ended_at
    assert console.wait_whole_log("a1") == "hello\n"
    assert gone.log_size == 6


def test_states_are_reported_in_order(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="read -t 0.3 < <(sleep 5); exit 0", phase="prepare"))
    console.wait_state("a1", "ready")
    console.want(worker(script="read -t 0.3 < <(sleep 5); exit 0"))
    console.wait_state("a1", "running")
    console.wait_gone("a1")
    states = [report.state for report in console.history["a1"]]
    order = ["preparing", "ready", "running", "stopping", "ended"]
    assert states == sorted(states, key=order.index)


def test_straight_to_start(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="echo one; echo two >&2"))
    assert console.wait_gone("a1").exit == Exit(kind="exited", code=0)
    assert console.wait_whole_log("a1") == "one\ntwo\n"


def test_command_not_found(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(command="nosuch", args=()))
    gone = console.wait_gone("a1")
    assert gone.exit == Exit(kind="not_started", message="command not found: nosuch")
    assert gone.started_at is None
    assert gone.log_size == 0


def test_command_that_is_no_program(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(command="/etc/passwd", args=()))
    assert console.wait_gone("a1").exit == Exit(
        kind="not_started", message="/etc/passwd can't be executed: permission denied (is it executable?)"
    )


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        (
            {"stop_signal": "SIGNOSUCH"},
            "SIGNOSUCH is no signal. Set `stop_signal` to one such as SIGTERM or SIGINT.",
        ),
        (
            {"user": "nobody-knows"},
            "There is no user nobody-knows on this machine. Give a uid, or leave `user` out.",
        ),
        (
            {"command": None},
            "No command is given, and the runtime bubblewrap has no image with one. Set `command`.",
        ),
        (
            {"args": ("-c", "a\0b")},
            "The command, its arguments or its environment have a NUL character. Remove it.",
        ),
    ],
)
def test_what_cannot_be_prepared(
    console: FakeConsole, agent: AgentProcess, flaw: dict[str, Any], message: str
) -> None:
    console.want(worker(phase="prepare", **flaw))
    assert console.wait_gone("a1").exit == Exit(kind="not_prepared", message=message)


def test_working_directory_that_does_not_exist(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(working_dir="/nosuch"))
    assert console.wait_gone("a1").exit == Exit(
        kind="not_started",
        message="working_dir /nosuch can't be entered on gpu-01: No such file or directory",
    )


def test_exit_by_signal_is_told_like_a_shell_does(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="bash -c 'kill -SEGV $$'; exit $?"))
    gone = console.wait_gone("a1")
    assert gone.exit is not None
    assert (gone.exit.kind, gone.exit.code, gone.exit.signal) == ("exited", 139, 11)


def test_all_descendants_die_with_the_command(console: FakeConsole, agent: AgentProcess) -> None:
    script = "setsid sleep 1000 & sleep 1000 & echo started; exit 0"
    console.want(worker(script=script))
    assert console.wait_gone("a1").exit == Exit(kind="exited", code=0)


def test_time_limit(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(
        worker(script="trap 'echo told; exit 7' TERM; while :; do sleep 0.05; done", time_limit_seconds=0.5)
    )
    gone = console.wait_gone("a1")
    assert gone.exit == Exit(kind="time_limit", code=7)
    assert console.wait_whole_log("a1") == "told\n"


def test_forgotten_when_the_console_lists_it_no_more(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="echo hello"))
    console.wait_whole_log("a1")
    console.want()
    console.wait(lambda: console.report("a1") is None, "a1 forgotten")
    eventually(lambda: not list((agent.state / "assignments").iterdir()), "its directory removed")


def test_disowned_worker_is_stopped_and_cleaned_away(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    console.wait_log("a1", "up")
    child = agent.record("a1")["child"]
    console.want()
    console.wait(lambda: console.report("a1") is None, "a1 forgotten")
    assert not alive(child)
    assert console.log("a1") == "up\ntold\n"


def test_two_workers_side_by_side(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker("a1", "echo one"), worker("a2", "echo two", worker="ddp-1"))
    assert console.wait_whole_log("a1") == "one\n"
    assert console.wait_whole_log("a2") == "two\n"
