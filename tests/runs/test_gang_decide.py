"""The one deciding place, without a database: a view of an attempt in, a decision out."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runs.gang.decide import Check, Close, End, NowRunning, Open, Wait, barrier_deadline, decide
from runs.gang.view import AttemptView, Member
from runs.states import AttemptState, Outcome, Phase, RunState, Wanted, WorkerState

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
S = WorkerState
CRASHED = {"kind": "exited", "code": 1}


def member(rank: int, state: WorkerState, **values) -> Member:
    started = state not in {S.PLACED, S.PREPARING, S.READY}
    gone = state in {S.SUCCEEDED, S.FAILED, S.STOPPED}
    made = Member(
        id=f"a{rank}",
        rank=rank,
        worker=f"ddp-{rank}",
        machine=f"gpu-0{rank + 1}",
        machine_id=rank + 1,
        state=state,
        phase=Phase.PREPARE,
        started=started,
        gone=gone,
        reachable=True,
        meets=False,
        checkable=False,
        doubtful_gpus=(),
        surely_over_at=None,
        exit=CRASHED if state == S.FAILED else {},
        memory_bytes=800 * 1024**3,
    )
    return replace(made, **values)


def view(*members: Member, state: AttemptState = AttemptState.STARTING, **values) -> AttemptView:
    made = AttemptView(
        now=NOW,
        run_state=RunState.STARTING,
        wanted=Wanted.RUN,
        stopped_by="",
        restart_asked=False,
        preemption=None,
        restarts=0,
        backoff_step=0,
        voids=0,
        voids_of_any_kind=0,
        void_kind="",
        number=1,
        state=state,
        outcome="",
        reason={},
        placed_at=NOW - timedelta(seconds=20),
        first_ready_at=None,
        opened_at=None if state == AttemptState.STARTING else NOW - timedelta(seconds=10),
        running_at=NOW - timedelta(seconds=9) if state == AttemptState.RUNNING else None,
        on_failure="RestartJob",
        max_restarts=3,
        barrier_timeout_seconds=900,
        time_limit_seconds=None,
        members=members,
    )
    return replace(made, **values)


# --- The barrier -------------------------------------------------------------------------------------


def test_nobody_starts_before_all_are_ready():
    decision = decide(view(member(0, S.READY), member(1, S.PREPARING), first_ready_at=NOW))

    assert decision == Wait(RunState.STARTING, {"code": "starting", "ready": 1, "workers": 2})


def test_the_barrier_opens_when_all_are_ready():
    assert isinstance(decide(view(member(0, S.READY), member(1, S.READY), first_ready_at=NOW)), Open)


def test_the_barrier_stays_shut_while_a_member_is_silent():
    silent = member(1, S.READY, reachable=False)

    assert isinstance(decide(view(member(0, S.READY), silent, first_ready_at=NOW)), Wait)


def test_a_gang_that_is_not_complete_in_time_goes_back_and_avoids_the_slow_machine():
    late = view(member(0, S.READY), member(1, S.PREPARING), first_ready_at=NOW - timedelta(seconds=900))

    assert decide(late) == End(Outcome.VOIDED, {"code": "barrier_timeout"}, avoid=(2,))


@pytest.mark.parametrize(
    ("timeout", "first_ready", "expected"),
    [
        (900, NOW, NOW + timedelta(seconds=900)),
        (900, None, NOW - timedelta(seconds=20) + timedelta(hours=1)),
        (7200, None, NOW - timedelta(seconds=20) + timedelta(hours=2)),
    ],
)
def test_the_deadline_counts_from_the_first_ready_member(timeout, first_ready, expected):
    waiting = view(member(0, S.PLACED), barrier_timeout_seconds=timeout, first_ready_at=first_ready)

    assert barrier_deadline(waiting) == expected


def test_a_check_is_begun_once_when_all_can():
    meeting = [member(rank, S.PREPARING, meets=True, checkable=True) for rank in (0, 1)]
    assert isinstance(decide(view(*meeting)), Check)

    for late in (replace(meeting[1], checkable=False), replace(meeting[1], reachable=False)):
        assert isinstance(decide(view(meeting[0], late)), Wait)

    begun = [replace(each, phase=Phase.CHECK) for each in meeting]
    checking = Wait(RunState.STARTING, {"code": "checking", "ready": 0, "workers": 2})
    assert decide(view(*begun)) == checking
    some = view(replace(begun[0], state=S.READY), begun[1])
    assert decide(some) == Wait(RunState.STARTING, {"code": "starting", "ready": 1, "workers": 2})


def test_it_is_running_once_every_member_has_said_so():
    opened = view(member(0, S.RUNNING), member(1, S.READY), state=AttemptState.OPENED)
    assert decide(opened) == Wait(RunState.STARTING, {"code": "opening", "workers": 2})

    both = view(member(0, S.RUNNING), member(1, S.RUNNING), state=AttemptState.OPENED)
    assert isinstance(decide(both), NowRunning)


# --- Failure -----------------------------------------------------------------------------------------


def test_a_failure_before_all_ran_voids_the_attempt():
    exit_ = {"kind": "not_prepared", "message": "port 29500 is in use on gpu-02"}
    failed = member(1, S.FAILED, started=False, exit=exit_)

    decision = decide(view(member(0, S.READY), failed))

    assert isinstance(decision, End)
    assert decision.outcome == Outcome.VOIDED
    assert decision.reason["exit"] == exit_
    assert decision.avoid == (2,)


def test_a_failure_of_a_running_gang_is_a_failure():
    decision = decide(view(member(0, S.RUNNING), member(1, S.FAILED), state=AttemptState.RUNNING))

    assert isinstance(decision, End)
    assert decision.outcome == Outcome.FAILED
    assert decision.reason["worker"] == "ddp-1"


def test_a_worker_that_failed_is_blamed_before_one_that_went_silent():
    decision = decide(view(member(0, S.LOST), member(1, S.FAILED), state=AttemptState.RUNNING))

    assert isinstance(decision, End)
    assert decision.reason["worker"] == "ddp-1"


def test_a_command_that_fails_at_once_waits_for_the_other_members_first_report():
    opened = view(
        member(0, S.FAILED),
        member(1, S.READY),
        state=AttemptState.OPENED,
        opened_at=NOW - timedelta(seconds=1),
    )
    assert isinstance(decide(opened), Wait)
    assert decide(replace(opened, opened_at=NOW - timedelta(seconds=6))).outcome == Outcome.VOIDED

    both = replace(opened, members=(member(0, S.FAILED), member(1, S.FAILED)))
    assert decide(both).outcome == Outcome.FAILED


def test_stopping_shows_how_many_have_ended():
    ending = view(member(0, S.STOPPED), member(1, S.RUNNING), state=AttemptState.ENDING, outcome="failed")

    assert decide(ending) == Wait(RunState.STOPPING, {"code": "stopping", "ended": 1, "workers": 2})


def ended(outcome: Outcome, reason: dict[str, Any], **values) -> AttemptView:
    members = (member(0, S.STOPPED), member(1, S.FAILED))
    return view(*members, state=AttemptState.ENDING, outcome=outcome, reason=reason, **values)


BLAME = {"code": "member_failed", "worker": "ddp-1", "machine": "gpu-02", "exit": CRASHED, "memory_bytes": 0}


def test_restart_job_queues_the_next_attempt_after_the_back_off():
    decision = decide(ended(Outcome.FAILED, BLAME, running_at=NOW - timedelta(seconds=60)))

    assert isinstance(decision, Close)
    assert decision.run_state == RunState.PENDING
    assert decision.not_before == NOW + timedelta(seconds=10)
    assert (decision.restarts, decision.backoff_step) == (1, 1)


@pytest.mark.parametrize(("step", "seconds"), [(0, 10), (1, 20), (4, 160), (5, 300), (9, 300)])
def test_the_back_off_doubles_up_to_five_minutes(step, seconds):
    decision = decide(ended(Outcome.FAILED, BLAME, restarts=1, backoff_step=step))

    assert decision.not_before == NOW + timedelta(seconds=seconds)


def test_ten_minutes_of_running_start_the_count_anew():
    decision = decide(
        ended(
            Outcome.FAILED,
            BLAME,
            restarts=3,
            backoff_step=3,
            running_at=NOW - timedelta(minutes=10),
        )
    )

    assert (decision.run_state, decision.restarts) == (RunState.PENDING, 1)
    assert decision.not_before == NOW + timedelta(seconds=10)


def test_after_max_restarts_the_run_fails():
    decision = decide(ended(Outcome.FAILED, BLAME, restarts=3))

    assert decision.run_state == RunState.FAILED
    assert decision.reason["restarts"] == 3


def test_fail_job_fails_at_once():
    assert decide(ended(Outcome.FAILED, BLAME, on_failure="FailJob")).run_state == RunState.FAILED


def test_three_voids_of_one_kind_in_a_row_fail_the_run():
    reason = {**BLAME, "exit": {"kind": "not_started", "message": "command not found: nosuch"}}

    first = decide(ended(Outcome.VOIDED, reason))
    assert (first.run_state, first.voids, first.restarts) == (RunState.PENDING, 1, 0)

    other_kind = decide(ended(Outcome.VOIDED, reason, voids=2, void_kind="barrier_timeout"))
    assert (other_kind.run_state, other_kind.voids) == (RunState.PENDING, 1)

    third = decide(ended(Outcome.VOIDED, reason, voids=2, void_kind="not_started"))
    assert third.run_state == RunState.FAILED
    assert third.reason["code"] == "never_ran"


def test_kinds_that_take_turns_do_not_go_round_for_ever():
    reason = {**BLAME, "exit": {"kind": "not_started", "message": "command not found: nosuch"}}

    ninth = decide(ended(Outcome.VOIDED, reason, voids=1, voids_of_any_kind=8, void_kind="barrier_timeout"))
    assert (ninth.run_state, ninth.voids_of_any_kind) == (RunState.PENDING, 9)

    tenth = decide(ended(Outcome.VOIDED, reason, voids=1, voids_of_any_kind=9, void_kind="barrier_timeout"))
    assert (tenth.run_state, tenth.reason["times"]) == (RunState.FAILED, 10)


# --- Lost machines -----------------------------------------------------------------------------------


def test_a_new_attempt_does_not_wait_for_a_lost_member():
    lost = member(1, S.LOST, reachable=False, surely_over_at=NOW)
    ending = view(member(0, S.STOPPED), lost, state=AttemptState.ENDING, outcome="failed", reason=BLAME)

    assert isinstance(decide(ending), Close)


def test_but_it_waits_until_a_member_that_stops_itself_is_surely_over():
    lost = member(1, S.LOST, reachable=False, surely_over_at=NOW + timedelta(seconds=30))
    ending = view(member(0, S.STOPPED), lost, state=AttemptState.ENDING, outcome="failed", reason=BLAME)

    assert isinstance(decide(ending), Wait)


# --- Limits and owners -------------------------------------------------------------------------------


def test_the_time_limit_counts_from_the_opened_barrier():
    both = (member(0, S.RUNNING), member(1, S.RUNNING))
    running = view(*both, state=AttemptState.RUNNING, time_limit_seconds=60)

    assert isinstance(decide(running), Wait)
    over = decide(replace(running, opened_at=NOW - timedelta(seconds=60)))
    assert over == End(Outcome.TIME_LIMIT, {"code": "time_limit", "seconds": 60})


def test_the_owner_ends_it_whatever_else_is_true():
    stopped = view(member(0, S.FAILED), member(1, S.RUNNING), wanted=Wanted.STOP, stopped_by="ana")

    assert decide(stopped) == End(Outcome.STOPPED, {"code": "stopped", "by": "ana"})


def test_all_succeeded():
    both = (member(0, S.SUCCEEDED), member(1, S.SUCCEEDED))

    decision = decide(view(*both, state=AttemptState.RUNNING))
    assert decision == End(Outcome.SUCCEEDED, {"code": "succeeded", "workers": 2})
    closing = view(*both, state=AttemptState.ENDING, outcome="succeeded", reason=decision.reason)
    assert decide(closing).run_state == RunState.SUCCEEDED
