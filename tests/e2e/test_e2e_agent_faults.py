"""kill -9 on the machines: agents, supervisors and workers, while a run prints numbered lines."""

import os
import signal

import pytest

from tests.e2e.documents import NUMBERED, gang
from tests.e2e.world import eventually, running

pytestmark = pytest.mark.processes


def both(name, attempt=1):
    return [(attempt, f"{name}-0", "gpu-01"), (attempt, f"{name}-1", "gpu-02")]


def test_an_agent_killed_in_the_middle_of_a_run_and_started_again(here):
    name = here.submit(gang("agent-killed", NUMBERED))
    here.wait_running(name)
    here.wait_lines(f"{name}-0", 5)
    before = {rank: here.processes(f"{name}-{rank}") for rank in (0, 1)}
    log = here.directory(f"{name}-0") / "log"

    here.stack.kill("agent-gpu-01")
    size = log.stat().st_size
    eventually(lambda: log.stat().st_size > size + 200, "the worker prints while its agent is dead")
    assert here.status(name)["state"] == "Running"
    here.stack.restart("agent-gpu-01")
    here.wait_lines(f"{name}-0", log.read_text().count("\n") + 5)

    assert {rank: here.processes(f"{name}-{rank}") for rank in (0, 1)} == before
    here.stop(name)
    assert here.numbered_whole(f"{name}-0")
    assert here.numbered_whole(f"{name}-1")
    assert here.assignments(name) == both(name)


def test_an_agent_killed_while_its_worker_starts(here):
    name = here.submit(gang("agent-killed-early", NUMBERED))
    eventually(lambda: list(here.stack.agents.glob("gpu-02/assignments/*/launch")), "gpu-02 prepares", 30)

    here.stack.kill("agent-gpu-02")
    here.stack.restart("agent-gpu-02")

    here.wait_running(name)
    here.wait_lines(f"{name}-1", 3)
    here.stop(name)
    assert here.numbered_whole(f"{name}-0")
    assert here.numbered_whole(f"{name}-1")
    assert here.assignments(name) == both(name)


def test_a_run_that_is_stopped_while_an_agent_is_dead(here):
    name = here.submit(gang("stopped-without-agent", NUMBERED))
    here.wait_running(name)
    here.stack.kill("agent-gpu-01")
    supervisor = here.processes(f"{name}-0")["supervisor"]

    assert here.api.post(f"/runs/{name}/stop").status_code == 202
    eventually(lambda: here.status(name)["reason"] == "1 of 2 workers ended", "worker 1 has ended")
    os.kill(supervisor, 0)  # still there: nobody could tell it
    here.stack.restart("agent-gpu-01")

    here.wait(name, "Stopped")
    assert here.numbered_whole(f"{name}-0")
    assert here.numbered_whole(f"{name}-1")


@pytest.mark.parametrize(
    ("victim", "how"),
    [
        ("child", "killed"),
        ("supervisor", "The worker's supervisor was killed, and the worker with it."),
    ],
)
def test_a_worker_killed_restarts_both(here, victim, how):
    name = here.submit(gang(f"killed-{victim}", NUMBERED, on_failure="RestartJob"))
    here.wait_running(name)
    here.wait_lines(f"{name}-1", 3)
    first = {rank: here.processes(f"{name}-{rank}") for rank in (0, 1)}

    os.kill(first[1][victim], signal.SIGKILL)

    pending = here.wait(name, "Pending")
    assert (pending["attempt"], pending["restarts"]) == (1, 1)
    assert pending["reason"] == (
        f"Attempt 1 failed ({name}-1 on gpu-02: {how}). Attempt 2 is queued in 10 s."
    )
    here.skip_backoff(name)
    here.wait(name, "Running", attempt=2)
    here.wait_lines(f"{name}-0", 3)
    for rank in (0, 1):
        assert not any(running(pid) for pid in first[rank].values()), "nothing of attempt 1 is left"
    here.stop(name)
    assert here.assignments(name) == both(name, 1) + both(name, 2)
    assert here.numbered_whole(f"{name}-0")
    assert here.numbered_whole(f"{name}-1")
    # The first attempt's logs stay: worker 0 was asked to end, worker 1 could print nothing more.
    assert here.astra("logs", "--attempt", "1", f"{name}-0") == here.log(f"{name}-0", attempt=1)
    assert here.log(f"{name}-0", attempt=1).splitlines()[-1] == "end"
    old = here.log(f"{name}-1", attempt=1).splitlines()
    assert old == ["start", *(f"line {number}" for number in range(1, len(old)))]
    assert len(old) >= 3
