"""How runs end: by a stop, by SIGKILL after the grace, by deletion, by the time limit, or at the barrier."""

import os
import signal

import pytest

from tests.e2e.documents import NUMBERED, gang, small
from tests.e2e.world import eventually, running

pytestmark = pytest.mark.processes

DEAF = "trap '' TERM; echo start; while :; do sleep 0.05; done"


def test_a_stop_lets_both_workers_finish(here):
    script = (
        "trap 'echo saving; sleep 0.3; echo saved; exit 0' TERM; echo start; while :; do sleep 0.05; done"
    )
    name = here.submit(gang("stop-grace", script))
    here.wait_running(name)
    here.wait_lines(f"{name}-0", 1)
    here.wait_lines(f"{name}-1", 1)

    stopped = here.astra("stop", name)
    status = here.wait(name, "Stopped")

    assert stopped == f"{name} stopping\n"
    assert status["reason"] == "Stopped by demo (token demo)"
    assert here.whole_log(f"{name}-0") == here.whole_log(f"{name}-1") == "start\nsaving\nsaved\n"


def test_a_process_that_ignores_the_stop_is_killed_after_its_grace(here):
    name = here.submit(small("stop-deaf", DEAF, stop_grace_seconds=1))
    here.wait_running(name)
    here.wait_lines(f"{name}-0", 1)
    pids = here.processes(f"{name}-0")

    here.stop(name)

    assert not any(running(pid) for pid in pids.values())
    [(notes,)] = here.sql(
        "SELECT array_agg(e.reason->>'text' ORDER BY note_number) FROM runs_workerevent e JOIN runs_worker w"
        " ON w.id = e.worker_id WHERE w.name = %s AND note_number > 0",
        f"{name}-0",
    )
    assert notes == [
        "Stop ordered: SIGTERM sent, SIGKILL follows after 1 s",
        "Killed with SIGKILL after 1 s of grace",
    ]


def test_a_run_that_is_deleted_while_it_runs(here):
    script = "trap 'sleep 0.5; exit 0' TERM; echo start; while :; do sleep 0.05; done"
    name = here.submit(gang("delete-running", script))
    here.wait_running(name)
    here.wait_lines(f"{name}-0", 1)
    pids = [pid for rank in (0, 1) for pid in here.processes(f"{name}-{rank}").values()]

    answers = [here.api.delete(f"/runs/{name}").status_code for _ in range(2)]
    eventually(lambda: here.api.get(f"/runs/{name}").status_code == 404, "it is gone")

    assert answers == [202, 202]
    assert not any(running(pid) for pid in pids)
    assert here.api.delete(f"/runs/{name}").status_code == 404
    assert here.sql("SELECT count(*) FROM runs_logchunk") == [(0,)]
    eventually(
        lambda: not list(here.stack.agents.glob("*/assignments/*/assignment.json")), "the agents forget it"
    )


def test_the_time_limit_stops_the_run(here):
    name = here.submit(gang("time-limit", NUMBERED, time_limit_seconds=1, on_failure="RestartJob"))

    status = here.wait(name, "Failed")

    assert status["reason"] == "Time limit of 1 s reached"
    assert status["attempt"] == 1
    assert here.numbered_whole(f"{name}-0")
    assert here.numbered_whole(f"{name}-1")


def test_the_barrier_stays_shut_until_all_are_ready_and_times_out(here):
    agent = here.stack.processes["agent-gpu-02"]
    agent.send(signal.SIGSTOP)
    name = here.submit(gang("barrier", "echo attempt $ASTRAEUS_ATTEMPT; sleep 60"))
    eventually(
        lambda: here.status(name)["reason"] == "Starting together: 1 of 2 ready",
        lambda: here.status(name),
    )
    waiting = here.processes(f"{name}-0")

    # 15 minutes later …
    here.sql(
        "UPDATE runs_assignment SET ready_at = ready_at - interval '900 seconds' WHERE ready_at IS NOT NULL"
    )
    eventually(lambda: not running(waiting["child"]), "worker 0 has given up its place")
    agent.send(signal.SIGCONT)

    here.wait(name, "Running", attempt=2)
    voided = [(state, text) for attempt, state, text in here.history(name) if attempt == 1]
    assert (
        "Pending",
        "Attempt 1 never ran; back in the queue. Gang barrier timed out waiting for all members",
    ) in (voided)
    assert "Running" not in [state for state, _ in voided]
    assert here.log(f"{name}-0", attempt=1) == here.log(f"{name}-1", attempt=1) == ""
    here.wait_lines(f"{name}-1", 1)
    assert here.log(f"{name}-1") == "attempt 2\n"
    os.kill(here.processes(f"{name}-1", 2)["child"], 0)
