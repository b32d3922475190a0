"""The warning before the time limit, hung workers, and what is told of both."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.silence import Silence, simulated_gpus_busy
from agent.watch import MOST_NOTES, Watched, watched_read
from tests.agent.agents import AgentProcess, alive, eventually, worker
from tests.agent.fake_console import FakeConsole
from wire.agent_messages import Exit

LOOP = "echo up; while :; do sleep 0.05; done"
WARNED = "trap 'echo warned' USR1; " + LOOP


def marks(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line == "warned"] if path.exists() else []


# --- the warning


@pytest.mark.processes
def test_the_stop_signal_comes_once_before_the_time_limit(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(
        worker(
            script=f"trap 'echo warned' USR1; {LOOP}",
            stop_signal="SIGUSR1",
            time_limit_seconds=3,
            warn_signal_seconds=2,
            stop_grace_seconds=0.5,
        )
    )
    gone = console.wait_gone("a1")
    assert gone.exit == Exit(kind="time_limit", code=137, signal=9)
    assert console.wait_whole_log("a1") == "up\nwarned\nwarned\n", "the second one is the limit's own"
    started, warned, limit = gone.started_at, gone.notes[-1].at, gone.notes[1].at
    assert started is not None
    assert 1 <= warned - started < 2.5
    assert 2.9 <= limit - started < 4.5
    assert [note.text for note in gone.notes[1:]] == [
        "Time limit reached: SIGUSR1 sent, SIGKILL follows after 0.5 s",
        "Killed with SIGKILL after 0.5 s of grace",
        "2 s to the time limit: SIGUSR1 sent as a warning",
    ]


@pytest.mark.processes
def test_a_killed_agent_changes_nothing_about_the_warning(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(
        worker(script=WARNED, stop_signal="SIGUSR1", time_limit_seconds=1000, warn_signal_seconds=998.5)
    )
    console.wait_log("a1", "up\n")
    agent.kill()
    log = agent.directory("a1") / "log"
    eventually(lambda: marks(log), "the warning, without an agent")
    assert "warned_at" in agent.record("a1")
    agent.start()
    report = console.wait_state("a1", "running")
    assert report.notes[-1].text == "16 min 38 s to the time limit: SIGUSR1 sent as a warning"
    console.wait_log("a1", "warned\n")
    assert marks(log) == ["warned"]


@pytest.mark.processes
def test_a_worker_that_does_not_listen_survives_the_warning(
    console: FakeConsole, agent: AgentProcess
) -> None:
    command: dict[str, Any] = {"command": "sleep", "args": ("1000",)}
    console.want(worker(time_limit_seconds=1000, warn_signal_seconds=999.5, **command))
    console.wait_state("a1", "running")
    eventually(lambda: "warned_at" in agent.record("a1"), "the warning")
    assert alive(agent.record("a1")["child"])
    console.want(worker(time_limit_seconds=1000, warn_signal_seconds=999.5, phase="stop", **command))
    assert console.wait_gone("a1").exit == Exit(kind="stopped", code=143, signal=15)


@pytest.mark.processes
def test_sigkill_is_no_warning(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script=LOOP, stop_signal="SIGKILL", time_limit_seconds=1.5, warn_signal_seconds=1.3))
    gone = console.wait_gone("a1")
    assert gone.exit is not None
    assert gone.exit.kind == "time_limit"
    assert not any("warning" in note.text for note in gone.notes)


# --- silence


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Gpus:
    busy: bool | None = False

    def __call__(self, _uuids: object) -> bool | None:
        return self.busy


def silence(gpus: Gpus, clock: Clock, *uuids: str) -> Silence:
    return Silence(60, uuids, gpus, clock=clock)


def test_a_worker_is_hung_after_so_long_without_output_and_with_idle_gpus() -> None:
    gpus, clock = Gpus(), Clock()
    worker_silence = silence(gpus, clock, "GPU-1")
    for now, size, hung in ((100, 0, False), (130, 5, False), (189, 5, False)):
        clock.now = now
        assert bool(worker_silence.look(size)) is hung
    clock.now = 190
    assert worker_silence.look(5) == "hung: no log line for 1 min while its GPUs were idle"


def test_busy_gpus_are_a_sign_of_life_and_so_are_those_of_which_nothing_is_known() -> None:
    for busy in (True, None):
        gpus, clock = Gpus(), Clock()
        gpus.busy = busy
        worker_silence = silence(gpus, clock, "GPU-1")
        for now in range(100, 400, 10):
            clock.now = now
            assert worker_silence.look(5) == ""
        gpus.busy = False
        clock.now = 449
        assert worker_silence.look(5) == ""
        clock.now = 450
        assert worker_silence.look(5) != ""


def test_whose_gpus_are_busy() -> None:
    assert simulated_gpus_busy(("GPU-1",)) is False


@pytest.mark.processes
def test_a_hung_worker_fails_with_the_reason(console: FakeConsole, agent: AgentProcess) -> None:
    script = "for i in 1 2 3; do sleep 0.6; echo $i; done; trap 'exit 9' TERM; while :; do sleep 0.05; done"
    console.want(worker(script=script, hang_after_seconds=1.5))
    gone = console.wait_gone("a1")
    assert gone.exit == Exit(kind="hung", code=9, message="hung: no log line for 1 s")
    assert console.wait_whole_log("a1") == "1\n2\n3\n"
    assert gone.notes[-1].text == "Hung: no log line for 1 s; SIGTERM sent, SIGKILL follows after 30 s"


@pytest.mark.processes
def test_a_hung_worker_is_found_by_the_next_agent_too(console: FakeConsole, tmp_path: Path) -> None:
    """Simulated GPUs count as idle."""
    gpu = {"index": 0, "uuid": "GPU-1", "product": "NVIDIA H100", "memory_bytes": 1}
    (tmp_path / "inventory.json").write_text(json.dumps({"gpus": [gpu]}))
    agent = AgentProcess(console, tmp_path / "state").join(simulate=str(tmp_path / "inventory.json")).start()
    try:
        console.want(worker(script="trap 'exit 9' TERM; " + LOOP, hang_after_seconds=2, gpu_uuids=("GPU-1",)))
        console.wait_log("a1", "up\n")
        agent.kill()
        agent.start()
        message = "hung: no log line for 2 s while its GPUs were idle"
        assert console.wait_gone("a1").exit == Exit(kind="hung", code=9, message=message)
    finally:
        agent.clean()


# --- what is kept


def test_notes_are_bounded() -> None:
    known = Watched()
    for _ in range(100):
        known = known.noted("Ready")
    assert len(known.notes) == MOST_NOTES
    assert [note.number for note in known.notes] == list(range(10, 10 + MOST_NOTES))
    assert known.notes[-1].text == "Ready (Later changes are not listed.)"


def test_a_record_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "watch.json").write_text("{")
    assert watched_read(tmp_path / "watch.json") == Watched()


# --- the likely cause


@pytest.mark.processes
def test_the_likely_cause_comes_with_the_exit(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(
        worker(command="python", args=("-c", "print('epoch 1', flush=True)\nraise ValueError('no data')"))
    )
    gone = console.wait_gone("a1")
    log = console.wait_whole_log("a1")
    assert gone.exit == Exit(
        kind="exited", code=1, cause="ValueError: no data", cause_at=log.index("ValueError: no data")
    )


@pytest.mark.processes
@pytest.mark.parametrize(
    "script", ["echo command not found", "echo command not found; kill -TERM 0; sleep 1"]
)
def test_what_has_not_failed_has_no_cause(console: FakeConsole, agent: AgentProcess, script: str) -> None:
    console.want(worker(script=script, phase="start"))
    if "sleep" in script:
        console.want(worker(script=script, phase="stop"))
    end = console.wait_gone("a1").exit
    assert end is not None
    assert end.cause == ""
