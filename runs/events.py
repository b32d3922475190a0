"""Moves of runs and workers: a guarded UPDATE and its line in the history, always together."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from common.clock import database_now
from common.nudge import publish_on_commit, task_send_on_commit
from runs.models import Assignment, Run, RunEvent, Worker, WorkerEvent
from runs.states import RunState, WorkerState

LIVE_CHANNEL = "astraeus:live"
"""Messages `run:<id>`, `workspace:<id>` and `log:<assignment>`: pages and followers read again."""

Reason = dict[str, Any]


def run_move(
    run: Run, state: RunState, reason: Reason, *, was: RunState, history: Reason | None = None, **fields: Any
) -> bool:
    """Moves the run from `was` to `state`; False (and nothing written) when it is no longer in `was`.

    `history`: what the history says of the move, where that is not the reason shown from now on.
    """
    changed = Run.objects.filter(id=run.id, state=was).update(state=state, reason=reason, **fields)
    if not changed:
        return False
    run.state, run.reason = state, reason
    for name, value in fields.items():
        setattr(run, name, value)
    if state != was or reason.get("code") in {"queued", "restarted"}:
        run_note(run, history or reason)
    if run.parent_id is not None and state != was:
        run_advance_on_commit(run.parent_id)  # it gathers what has become of its children
    run_announce(run)
    return True


def run_advance_on_commit(run_id: int) -> None:
    """Has the one deciding place look at this run, as soon as the transaction is committed."""
    from runs import tasks

    task_send_on_commit(tasks.run_advance, run_id)


def run_note(run: Run, reason: Reason, at: datetime | None = None) -> None:
    """A line in the run's history."""
    at = at or database_now()
    if run.parent_id is not None:
        _child_note(run, run.parent_id, reason, at)
        return
    RunEvent.objects.create(run_id=run.id, at=at, attempt_no=run.attempt_no, state=run.state, reason=reason)


def _child_note(child: Run, parent_id: int, reason: Reason, at: datetime) -> None:
    """A child has no page: what sends it back to the queue stands in its worker's history, and in that of the run.

    All else that happens to it the worker's own moves tell.
    """
    if child.state != RunState.PENDING:
        return
    worker = Worker.objects.get(run=child)
    line = {"at": at, "attempt_no": child.attempt_no, "state": child.state}
    WorkerEvent.objects.create(worker=worker, reason=reason, **line)
    told = {"code": "of_worker", "worker": worker.name, "cause": reason}
    RunEvent.objects.create(run_id=parent_id, reason=told, **line)


def run_announce(run: Run) -> None:
    """Pages that show the run, or its workspace's runs, read again."""
    publish_on_commit(LIVE_CHANNEL, f"run:{run.shown_id},workspace:{run.workspace_id}")


@dataclass(frozen=True, slots=True)
class WorkerMove:
    """A worker's new state, why, and the assignment that brought it."""

    worker: Worker
    state: WorkerState
    reason: Reason
    assignment: Assignment | None


def workers_move(moves: Sequence[WorkerMove], *, attempt_no: int, at: datetime) -> None:
    """Sets the workers' states, with a line in the history of each whose state is new."""
    moved = [move for move in moves if move.worker.state != move.state]
    for move in moves:
        move.worker.state, move.worker.reason = move.state, move.reason
    Worker.objects.bulk_update([move.worker for move in moves], ["state", "reason"])
    WorkerEvent.objects.bulk_create(
        WorkerEvent(
            worker=move.worker,
            assignment=move.assignment,
            at=at,
            attempt_no=attempt_no,
            state=move.state,
            reason=move.reason,
        )
        for move in moved
    )
