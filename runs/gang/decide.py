"""What is to be done about an attempt: a pure function of its view.

The life of an attempt: STARTING (members prepare, check together where that is asked for, and meet at the barrier) →
OPENED (all told to start) → RUNNING (all have reported that they run) → ENDING (its outcome is decided, members are
stopped) → ENDED. Until RUNNING, a failure voids the attempt: it goes back to the queue and counts as no restart.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from runs.gang.view import AttemptView, Member
from runs.states import AttemptState, Outcome, Phase, RunState, Wanted, WorkerState

BACKOFF_FIRST_SECONDS = 10
BACKOFF_LONGEST_SECONDS = 300
BACKOFF_RESET = timedelta(minutes=10)
"""An attempt that ran so long starts the count of restarts and the back-off anew."""
BEFORE_ANY_READY = timedelta(hours=1)
VOIDS_IN_A_ROW = 3
VOIDS_OF_ANY_KIND = 10
"""Kinds that take turns would else go round for ever."""
VOID_BACKOFF_SECONDS = 1
REPORTS_TOGETHER = timedelta(seconds=5)
"""After the barrier opened: how long a failure waits for the other members' first reports, so that a command
that fails at once on every machine counts as having run."""
FAILED = frozenset({WorkerState.FAILED, WorkerState.LOST, WorkerState.STOPPED})
"""Of a member whose attempt goes on: one that was stopped without an order is missing like any other."""

PREFLIGHT_FAILED = "preflight_failed"

Reason = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do but to show where it stands."""

    run_state: RunState
    reason: Reason


@dataclass(frozen=True, slots=True)
class Check:
    """All members run the check that they run together, before they are ready."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Open:
    """The barrier opens: all members start."""

    reason: Reason
    time_limit_seconds: int | None


@dataclass(frozen=True, slots=True)
class NowRunning:
    """All members have reported that they run."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class End:
    """The outcome is decided: members that still run are stopped."""

    outcome: Outcome
    reason: Reason
    avoid: tuple[int, ...] = ()
    """Machines to use last for this run for a while."""


@dataclass(frozen=True, slots=True)
class Close:
    """All members are over: the run ends or goes back to the queue."""

    run_state: RunState
    reason: Reason
    not_before: datetime | None = None
    restarts: int = 0
    backoff_step: int = 0
    voids: int = 0
    voids_of_any_kind: int = 0
    void_kind: str = ""


Decision = Wait | Check | Open | NowRunning | End | Close


def decide(view: AttemptView) -> Decision:
    """The next step; asked again after each change, so one step at a time is enough."""
    if view.state == AttemptState.ENDING:
        return _close(view) if all(_over(view, m) for m in view.members) else _stopping(view)
    return _owner_ends(view) or _fault_ends(view) or _goes_on(view)


# --- What ends an attempt ------------------------------------------------------------------------------


def _owner_ends(view: AttemptView) -> Decision | None:
    if view.wanted != Wanted.RUN:
        return End(Outcome.STOPPED, {"code": "stopped", "by": view.stopped_by})
    if view.restart_asked:
        return End(Outcome.REQUEUED, {"code": "restarted", "by": view.stopped_by})
    if view.preemption is not None:
        return End(Outcome.REQUEUED, view.preemption)
    return None


def _fault_ends(view: AttemptView) -> Decision | None:
    if _past_time_limit(view):
        return End(Outcome.TIME_LIMIT, {"code": "time_limit", "seconds": view.time_limit_seconds})
    if any(member.state in FAILED for member in view.members):
        return _failure(view)
    if view.state == AttemptState.STARTING and (doubtful := _doubtful(view)):
        return End(Outcome.REQUEUED, doubtful)
    if view.state == AttemptState.STARTING and view.now >= barrier_deadline(view):
        late = tuple(m.machine_id for m in view.members if not _waits_for_others(m))
        return End(Outcome.VOIDED, {"code": "barrier_timeout"}, avoid=late)
    return None


def _waits_for_others(member: Member) -> bool:
    may_check = member.checkable and member.phase == Phase.PREPARE
    return member.state == WorkerState.READY or may_check


def _doubtful(view: AttemptView) -> Reason | None:
    """Healthy GPUs were asked for, and one shows a warning sign before the work has begun."""
    for member in view.members:
        if member.doubtful_gpus:
            return {"code": "gpu_doubtful", "machine": member.machine, "gpus": list(member.doubtful_gpus)}
    return None


def _past_time_limit(view: AttemptView) -> bool:
    if view.time_limit_seconds is None or view.opened_at is None:
        return False
    if any(m.exit.get("kind") == "time_limit" for m in view.members):
        return True
    return view.now >= view.opened_at + timedelta(seconds=view.time_limit_seconds)


def barrier_deadline(view: AttemptView) -> datetime:
    """When a gang that is not complete goes back to the queue."""
    timeout = timedelta(seconds=view.barrier_timeout_seconds)
    if view.first_ready_at is not None:
        return view.first_ready_at + timeout
    return view.placed_at + max(timeout, BEFORE_ANY_READY)


def _failure(view: AttemptView) -> Decision:
    first = min((m for m in view.members if m.state in FAILED), key=_blame)
    reason = _member_reason(first)
    if first.exit.get("kind") == PREFLIGHT_FAILED:
        return End(Outcome.VOIDED, reason, avoid=_at_fault(view, first))
    if all(member.started for member in view.members):
        return End(Outcome.FAILED, reason, avoid=(first.machine_id,))
    if view.opened_at is not None and first.started and view.now < view.opened_at + REPORTS_TOGETHER:
        return _goes_on(view)
    return End(Outcome.VOIDED, reason, avoid=(first.machine_id,))


def _at_fault(view: AttemptView, member: Member) -> tuple[int, ...]:
    """The machines that a check has found at fault; its own where it names none of the gang's."""
    named = set(member.exit.get("machines", ()))
    return tuple(each.machine_id for each in view.members if each.machine in named) or (member.machine_id,)


def _blame(member: Member) -> tuple[bool, int]:
    """Lost ones last: a worker that failed says more than one that went silent."""
    return (member.state == WorkerState.LOST, member.rank)


def _member_reason(member: Member) -> Reason:
    return {
        "code": "member_failed",
        "worker": member.worker,
        "machine": member.machine,
        "exit": member.exit or {"kind": "lost", "message": "the machine has not been heard from"},
        "memory_bytes": member.memory_bytes,
    }


# --- While it goes on ----------------------------------------------------------------------------------


def _goes_on(view: AttemptView) -> Decision:
    if all(member.state == WorkerState.SUCCEEDED for member in view.members):
        return End(Outcome.SUCCEEDED, {"code": "succeeded", "workers": len(view.members)})
    if view.state == AttemptState.STARTING:
        return _at_barrier(view)
    running = {
        "code": "running",
        "running": sum(m.state == WorkerState.RUNNING for m in view.members),
        "workers": len(view.members),
        "succeeded": sum(m.state == WorkerState.SUCCEEDED for m in view.members),
    }
    if view.state == AttemptState.RUNNING:
        return Wait(RunState.RUNNING, running)
    if all(member.started for member in view.members):
        return NowRunning(running)
    return Wait(RunState.STARTING, {"code": "opening", "workers": len(view.members)})


def _at_barrier(view: AttemptView) -> Decision:
    ready = sum(member.state == WorkerState.READY for member in view.members)
    if ready == len(view.members) and all(member.reachable for member in view.members):
        return Open({"code": "opening", "workers": ready}, view.time_limit_seconds)
    reason = {"code": "starting", "ready": ready, "workers": len(view.members)}
    checking = {**reason, "code": "checking"}
    if any(member.phase == Phase.CHECK for member in view.members):
        return Wait(RunState.STARTING, reason if ready else checking)
    return Check(checking) if _may_check(view) else Wait(RunState.STARTING, reason)


def _may_check(view: AttemptView) -> bool:
    """Together: a member that is not there would have the others wait for it with their GPUs busy."""
    return all(member.meets and member.checkable and member.reachable for member in view.members)


def _over(view: AttemptView, member: Member) -> bool:
    if member.gone:
        return True
    lost = member.state == WorkerState.LOST and member.surely_over_at is not None
    return lost and member.surely_over_at is not None and view.now >= member.surely_over_at


def _stopping(view: AttemptView) -> Decision:
    ended = sum(_over(view, member) for member in view.members)
    state = RunState.STOPPING
    return Wait(state, {"code": "stopping", "ended": ended, "workers": len(view.members)})


# --- What becomes of the run ---------------------------------------------------------------------------


def _close(view: AttemptView) -> Close:
    if view.wanted != Wanted.RUN:
        return Close(RunState.STOPPED, {"code": "stopped", "by": view.stopped_by}, restarts=view.restarts)
    if view.restart_asked:  # while it was ending for another reason
        return Close(RunState.PENDING, {"code": "restarted", "by": view.stopped_by}, restarts=view.restarts)
    outcome = Outcome(view.outcome)
    if outcome == Outcome.FAILED:
        return _after_failure(view)
    if outcome == Outcome.VOIDED:
        return _after_void(view)
    if outcome == Outcome.REQUEUED:
        return Close(RunState.PENDING, view.reason, restarts=view.restarts)
    ended = {Outcome.SUCCEEDED: RunState.SUCCEEDED, Outcome.TIME_LIMIT: RunState.FAILED}
    return Close(ended.get(outcome, RunState.STOPPED), view.reason, restarts=view.restarts)


def _after_failure(view: AttemptView) -> Close:
    ran_long = view.running_at is not None and view.now - view.running_at >= BACKOFF_RESET
    restarts, step = (0, 0) if ran_long else (view.restarts, view.backoff_step)
    details = {key: value for key, value in view.reason.items() if key != "code"}
    if view.on_failure == "FailJob" or restarts >= view.max_restarts:
        reason = {"code": "failed", "restarts": restarts, **details}
        return Close(RunState.FAILED, reason, restarts=restarts, backoff_step=step)
    seconds = backoff_seconds(step)
    reason = {"code": "restarting", "attempt": view.number, "backoff_seconds": seconds, **details}
    return Close(
        RunState.PENDING,
        reason,
        not_before=view.now + timedelta(seconds=seconds),
        restarts=restarts + 1,
        backoff_step=step + 1,
    )


def backoff_seconds(step: int) -> int:
    """After the `step`-th failure in a row, from 0 on."""
    seconds: int = BACKOFF_FIRST_SECONDS * 2**step
    return min(seconds, BACKOFF_LONGEST_SECONDS)


def _after_void(view: AttemptView) -> Close:
    kind = _void_kind(view.reason)
    voids = view.voids + 1 if kind == view.void_kind else 1
    of_any_kind = view.voids_of_any_kind + 1
    if voids >= VOIDS_IN_A_ROW or of_any_kind >= VOIDS_OF_ANY_KIND:
        times = voids if voids >= VOIDS_IN_A_ROW else of_any_kind
        reason = {"code": "never_ran", "times": times, "cause": view.reason}
        return Close(RunState.FAILED, reason, restarts=view.restarts)
    return Close(
        RunState.PENDING,
        {"code": "back_to_queue", "attempt": view.number, "cause": view.reason},
        not_before=view.now + timedelta(seconds=VOID_BACKOFF_SECONDS),
        restarts=view.restarts,
        backoff_step=view.backoff_step,
        voids=voids,
        voids_of_any_kind=of_any_kind,
        void_kind=kind,
    )


def _void_kind(reason: Reason) -> str:
    """Failures of one kind in a row mean that trying again is no use."""
    return str(reason.get("exit", {}).get("kind") or reason["code"])
