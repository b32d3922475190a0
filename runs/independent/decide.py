"""What is to be done about an independent run: a pure function of its children.

Each child goes its own way. The run as a whole ends when all have succeeded, when its owner wants that, or when one of
them has failed for good: then the others are stopped, and when all are over the run ends or all are queued anew.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from runs.gang.decide import Close, Wait, backoff_seconds
from runs.states import RUN_ENDED, RunState, Wanted

Reason = dict[str, Any]

COUNTED = {
    RunState.RUNNING: "running",
    RunState.STARTING: "starting",
    RunState.STOPPING: "stopping",
    RunState.SUCCEEDED: "succeeded",
    RunState.PENDING: "waiting",
    RunState.FAILED: "failed",
    RunState.STOPPED: "stopped",
}
"""A child's state → its name among the numbers of the reason."""
SAID_TILL_JUDGED = frozenset({"restarting", "restarted"})
"""Reasons that say more than that all wait."""


@dataclass(frozen=True, slots=True)
class Child:
    """One worker's own run."""

    worker: str
    rank: int
    state: RunState
    reason: Reason
    restarts: int
    backoff_step: int
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class FamilyView:
    """An independent run and its children, at one instant of the database's clock."""

    now: datetime
    state: RunState
    reason: Reason
    wanted: Wanted
    stopped_by: str
    restart_asked: bool
    attempt_no: int
    on_failure: str
    max_restarts: int
    children: tuple[Child, ...]


@dataclass(frozen=True, slots=True)
class StopAll:
    """The run as a whole ends: children that still wait or run are stopped."""

    reason: Reason


Decision = Wait | StopAll | Close


def decide(view: FamilyView) -> Decision:
    """The next step; asked again after each change."""
    cause = _cause(view)
    over = all(child.state in RUN_ENDED for child in view.children)
    if cause is not None:
        return _close(view) if over else StopAll(cause)
    if over:  # none has failed, and nobody was stopped: `_cause` would have said so
        return Close(RunState.SUCCEEDED, {"code": "succeeded", "workers": len(view.children)})
    return _goes_on(view)


def _cause(view: FamilyView) -> Reason | None:
    """Why the run as a whole ends."""
    if view.wanted != Wanted.RUN:
        return {"code": "stopped", "by": view.stopped_by}
    if view.restart_asked:
        return {"code": "restarted", "by": view.stopped_by}
    failed = _first_failed(view)
    return _failure(failed) if failed else None


def _first_failed(view: FamilyView) -> Child | None:
    """A child that is stopped without anybody's asking is missing like one that has failed."""
    failed = [child for child in view.children if child.state in {RunState.FAILED, RunState.STOPPED}]
    return min(failed, key=lambda child: _blame(child, view.now), default=None)


def _blame(child: Child, now: datetime) -> tuple[bool, datetime, int]:
    """Who failed says more than who was stopped for it; of several the first."""
    return (child.state != RunState.FAILED, child.ended_at or now, child.rank)


def _failure(child: Child) -> Reason:
    """What the history says of it, before it is known whether all are restarted."""
    if child.reason.get("code") != "failed":
        return of_worker(child)
    return {**child.reason, "code": "member_failed"}


def of_worker(child: Child) -> Reason:
    """The child's reason, as the run says it: with the worker's name, unless it stands there."""
    if child.reason.get("code") == "failed":
        return child.reason
    return {"code": "of_worker", "worker": child.worker, "cause": child.reason}


# --- While it goes on ----------------------------------------------------------------------------------


def _goes_on(view: FamilyView) -> Wait:
    counts = counts_of(child.state for child in view.children)
    waits = counts.get("waiting") == len(view.children)
    if waits and view.state == RunState.PENDING and view.reason.get("code") in SAID_TILL_JUDGED:
        return Wait(view.state, view.reason)
    return Wait(_state(counts), {"code": "independent", "workers": len(view.children), **counts})


def counts_of(states: Iterable[str]) -> dict[str, int]:
    """How many children are in which state; only states in which there are some."""
    found = Counter(states)
    return {name: found[state] for state, name in COUNTED.items() if found[state]}


def _state(counts: dict[str, int]) -> RunState:
    """It runs as soon as one does, and waits when none is on a machine."""
    for state in (RunState.RUNNING, RunState.STARTING, RunState.STOPPING):
        if counts.get(COUNTED[state]):
            return state
    return RunState.PENDING


# --- When all are over ---------------------------------------------------------------------------------


def _close(view: FamilyView) -> Close:
    if view.wanted != Wanted.RUN:
        return Close(RunState.STOPPED, {"code": "stopped", "by": view.stopped_by})
    if view.restart_asked:
        return Close(RunState.PENDING, {"code": "restarted", "by": view.stopped_by})
    failed = _first_failed(view)
    assert failed is not None  # noqa: S101 - else there is no cause to close
    return _after_failure(view, failed)


def _after_failure(view: FamilyView, failed: Child) -> Close:
    """A child's own count begins anew after it has run long, so it is the one that counts for all."""
    restartable = view.on_failure == "RestartJob" and failed.reason.get("code") == "failed"
    if not restartable or failed.restarts >= view.max_restarts:
        return Close(RunState.FAILED, of_worker(failed), restarts=failed.restarts)
    seconds = backoff_seconds(failed.backoff_step)
    details = {key: value for key, value in failed.reason.items() if key not in {"code", "restarts"}}
    return Close(
        RunState.PENDING,
        {"code": "restarting", "attempt": view.attempt_no, "backoff_seconds": seconds, **details},
        not_before=view.now + timedelta(seconds=seconds),
        restarts=failed.restarts + 1,
        backoff_step=failed.backoff_step + 1,
    )
