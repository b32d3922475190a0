"""What becomes of a run whose workers start on their own: the pure function, state by state."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runs.gang.decide import Close, Wait
from runs.independent.decide import Child, FamilyView, StopAll, decide
from runs.reasons import word
from runs.states import RunState, Wanted

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
S = RunState


def failed_reason(worker: str, restarts: int = 0) -> dict[str, Any]:
    return {
        "code": "failed",
        "restarts": restarts,
        "worker": worker,
        "machine": "gpu-01",
        "exit": {"kind": "exited", "code": 1},
    }


def child(rank: int, state: RunState, **values: Any) -> Child:
    worker = f"sweep-{rank}"
    reason = failed_reason(worker) if state == S.FAILED else {}
    made = Child(worker, rank, state, reason, restarts=0, backoff_step=0, ended_at=None)
    return replace(made, **values)


def family(*states: RunState | Child, **values: Any) -> FamilyView:
    children = [each if isinstance(each, Child) else child(rank, each) for rank, each in enumerate(states)]
    made = FamilyView(
        now=NOW,
        state=S.RUNNING,
        reason={},
        wanted=Wanted.RUN,
        stopped_by="",
        restart_asked=False,
        attempt_no=1,
        on_failure="RestartTask",
        max_restarts=3,
        children=tuple(children),
    )
    return replace(made, **values)


@pytest.mark.parametrize(
    ("states", "state", "sentence"),
    [
        ([S.PENDING, S.PENDING], S.PENDING, "2 of 2 workers wait"),
        ([S.PENDING], S.PENDING, "1 of 1 worker waits"),
        ([S.STARTING, S.PENDING], S.STARTING, "1 of 2 workers starting, 1 waits"),
        ([S.STARTING, S.RUNNING, S.PENDING], S.RUNNING, "1 of 3 workers running, 1 starting, 1 waits"),
        ([S.STOPPING, S.PENDING], S.STOPPING, "1 of 2 workers stopping, 1 waits"),
        ([S.SUCCEEDED, S.PENDING, S.PENDING], S.PENDING, "1 of 3 workers succeeded, 2 wait"),
        ([S.SUCCEEDED, S.RUNNING], S.RUNNING, "1 of 2 workers running, 1 succeeded"),
    ],
)
def test_it_is_where_the_furthest_of_its_workers_is(states, state, sentence):
    decision = decide(family(*states))
    assert isinstance(decision, Wait)
    assert (decision.run_state, word(decision.reason)) == (state, sentence)


def test_it_has_succeeded_when_all_have():
    assert decide(family(S.SUCCEEDED, S.SUCCEEDED)) == Close(S.SUCCEEDED, {"code": "succeeded", "workers": 2})


def test_while_all_wait_after_a_failure_that_is_what_it_says():
    reason = {"code": "restarted", "by": "bea"}
    assert decide(family(S.PENDING, S.PENDING, state=S.PENDING, reason=reason)) == Wait(S.PENDING, reason)


@pytest.mark.parametrize("on_failure", ["RestartTask", "RestartJob", "FailJob"])
def test_one_that_failed_for_good_stops_the_others(on_failure):
    decision = decide(family(S.RUNNING, S.FAILED, S.PENDING, on_failure=on_failure))
    assert isinstance(decision, StopAll)
    assert word(decision.reason) == "sweep-1 on gpu-01: code 1"


def test_the_first_that_failed_is_named():
    early = child(1, S.FAILED, ended_at=NOW - timedelta(seconds=9))
    late = child(0, S.FAILED, ended_at=NOW - timedelta(seconds=1))
    decision = decide(family(late, early, S.STOPPED))
    assert isinstance(decision, Close)
    assert decision.reason["worker"] == "sweep-1"


def test_restart_job_queues_all_after_the_back_off_and_counts_once():
    failed = child(1, S.FAILED, reason=failed_reason("sweep-1", 1), restarts=1, backoff_step=1)
    decision = decide(family(S.STOPPED, failed, S.SUCCEEDED, on_failure="RestartJob", attempt_no=2))
    assert isinstance(decision, Close)
    assert (decision.run_state, decision.restarts, decision.backoff_step) == (S.PENDING, 2, 2)
    assert decision.not_before == NOW + timedelta(seconds=20)
    assert word(decision.reason) == (
        "Attempt 2 failed (sweep-1 on gpu-01: code 1). Attempt 3 is queued in 20 s."
    )


@pytest.mark.parametrize(
    ("on_failure", "restarts", "state"),
    [
        ("RestartJob", 2, S.PENDING),
        ("RestartJob", 3, S.FAILED),
        ("RestartTask", 0, S.FAILED),
        ("FailJob", 0, S.FAILED),
    ],
)
def test_who_may_restart(on_failure, restarts, state):
    """With RestartTask a worker that failed for good has restarted by itself as often as it may."""
    failed = child(0, S.FAILED, restarts=restarts)
    decision = decide(family(failed, S.STOPPED, on_failure=on_failure))
    assert isinstance(decision, Close)
    assert decision.run_state == state


def test_a_time_limit_is_not_restarted():
    over = child(0, S.FAILED, reason={"code": "time_limit", "seconds": 60})
    decision = decide(family(over, S.STOPPED, on_failure="RestartJob"))
    assert isinstance(decision, Close)
    assert (decision.run_state, word(decision.reason)) == (S.FAILED, "sweep-0: Time limit of 1 min reached")


def test_what_the_owner_wants_comes_first():
    stopped = {"wanted": Wanted.DELETE, "stopped_by": "bea", "restart_asked": True}
    assert decide(family(S.RUNNING, S.FAILED, **stopped)) == StopAll({"code": "stopped", "by": "bea"})
    assert decide(family(S.STOPPED, S.FAILED, **stopped)) == Close(
        S.STOPPED, {"code": "stopped", "by": "bea"}
    )
    asked = {"restart_asked": True, "stopped_by": "bea", "on_failure": "FailJob"}
    assert decide(family(S.SUCCEEDED, S.FAILED, **asked)) == Close(
        S.PENDING, {"code": "restarted", "by": "bea"}
    )
