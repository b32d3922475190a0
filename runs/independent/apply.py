"""Carries out what `decide` said of an independent run, under its lock and, before anything changes, its children's."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Count

from common.clock import database_now
from machines.signals import cluster_changed
from runs.events import run_advance_on_commit, run_move
from runs.gang.decide import Close, Wait
from runs.independent.children import children_of, children_requeue
from runs.independent.decide import Child, FamilyView, StopAll, counts_of, decide
from runs.models import Run, Worker
from runs.queue import NOT_QUEUED, runs_leave_queue
from runs.states import RUN_ENDED, RunState, Wanted, WorkerState

_COLUMNS = ("state", "reason", "restarts", "backoff_step", "ended_at", "attempt_no")


def family_step(run: Run) -> bool:
    """One decision; True when it changed something that may call for the next. The caller has locked the run."""
    view = _view(run)
    decision = decide(view)
    if isinstance(decision, Wait):
        _show(run, view, decision)
        return False
    children = children_of(run)
    view = _view(run)  # they stay as they are from here on
    decision = decide(view)
    if isinstance(decision, StopAll):
        return _stop(run, children, decision)
    if isinstance(decision, Close):
        _close(run, children, view, decision)
        return True
    return False


def _view(run: Run) -> FamilyView:
    spec = run.document["spec"]
    rows = _rows(run)
    return FamilyView(
        now=database_now(),
        state=RunState(run.state),
        reason=run.reason,
        wanted=Wanted(run.wanted),
        stopped_by=run.stopped_by,
        restart_asked=run.restart_asked,
        attempt_no=max([run.attempt_no, *(row["run__attempt_no"] for row in rows)]),
        on_failure=spec["on_failure"],
        max_restarts=spec["max_restarts"],
        children=tuple(_child(row) for row in rows),
    )


def _rows(run: Run) -> list[dict[str, Any]]:
    workers = Worker.objects.filter(run__parent=run, active=True).order_by("rank")
    return list(workers.values("name", "rank", *(f"run__{column}" for column in _COLUMNS)))


def _child(row: dict[str, Any]) -> Child:
    return Child(
        worker=row["name"],
        rank=row["rank"],
        state=RunState(row["run__state"]),
        reason=row["run__reason"],
        restarts=row["run__restarts"],
        backoff_step=row["run__backoff_step"],
        ended_at=row["run__ended_at"],
    )


def _show(run: Run, view: FamilyView, decision: Wait) -> None:
    restarts = run.restarts
    if view.on_failure == "RestartTask":  # each restarts alone, so those of all are told
        restarts = sum(child.restarts for child in view.children)
    told = (decision.run_state, decision.reason, view.attempt_no, restarts)
    if (run.state, run.reason, run.attempt_no, run.restarts) == told:
        return
    fields: dict[str, Any] = {"attempt_no": view.attempt_no, "restarts": restarts}
    if run.placed_at is None and decision.run_state != RunState.PENDING:
        fields["placed_at"] = view.now
    if run.started_at is None and decision.run_state == RunState.RUNNING:
        fields["started_at"] = view.now
    run_move(run, decision.run_state, decision.reason, was=RunState(run.state), **fields)


def _stop(run: Run, children: Sequence[Run], decision: StopAll) -> bool:
    now = database_now()
    _withdraw(run, [child for child in children if child.state == RunState.PENDING], now)
    running = [
        child for child in children if child.state not in RUN_ENDED and child.state != RunState.PENDING
    ]
    asked = [child.id for child in running if child.wanted == Wanted.RUN]
    Run.objects.filter(id__in=asked).update(wanted=Wanted.STOP, stopped_by=run.stopped_by)
    for child_id in asked:
        run_advance_on_commit(child_id)
    if not running:
        return True
    workers = len(children)
    reason = {"code": "stopping", "ended": workers - len(running), "workers": workers}
    if (run.state, run.reason) != (RunState.STOPPING, reason):
        run_move(run, RunState.STOPPING, reason, was=RunState(run.state), history=decision.reason)
    return False  # what comes next, the children must end first


def _withdraw(run: Run, waiting: Sequence[Run], now: datetime) -> None:
    """Children that wait leave the queue."""
    if not waiting:
        return
    ids = [child.id for child in waiting]
    reason = {"code": "stopped", "by": run.stopped_by}
    stopped = {"state": RunState.STOPPED, "wanted": Wanted.STOP, "reason": reason, "ended_at": now}
    Run.objects.filter(id__in=ids).update(**stopped, **NOT_QUEUED)
    Worker.objects.filter(run__in=ids).update(state=WorkerState.STOPPED, reason={})
    runs_leave_queue(ids, now)
    cluster_changed.send(sender=Run, cluster_id=run.cluster_id)


def _close(run: Run, children: Sequence[Run], view: FamilyView, decision: Close) -> None:
    """All children are over: the run ends, or all of them wait again."""
    run.attempt_no = view.attempt_no
    fields: dict[str, Any] = {"restart_asked": False, "attempt_no": view.attempt_no}
    if decision.run_state == RunState.PENDING:
        counts = decision.not_before is not None  # what an owner asks for does not
        counted = {"restarts": decision.restarts, "backoff_step": decision.backoff_step} if counts else {}
        children_requeue(run, children, reason=decision.reason, not_before=decision.not_before, **counted)
        cluster_changed.send(sender=Run, cluster_id=run.cluster_id)
        fields |= {"placed_at": None, **counted}
    else:
        fields["ended_at"] = view.now
    run_move(run, decision.run_state, decision.reason, was=RunState(run.state), **fields)


def families_due() -> list[int]:
    """Independent runs that don't say what their children are, or that shall end."""
    parents = Run.objects.filter(independent=True).exclude(state__in=RUN_ENDED)
    states: dict[int, list[str]] = {}
    children = Run.objects.filter(parent__in=parents, workers__active=True).order_by()
    for parent, state, number in children.values_list("parent_id", "state").annotate(Count("id")):
        states.setdefault(parent, []).extend([state] * number)
    rows = parents.order_by("id").values_list("id", "wanted", "restart_asked", "reason")
    return [
        run_id
        for run_id, wanted, restart_asked, reason in rows
        if wanted != Wanted.RUN or restart_asked or not _says(reason, counts_of(states.get(run_id, [])))
    ]


def _says(reason: dict[str, Any], counts: dict[str, int]) -> bool:
    return {key: value for key, value in reason.items() if key not in {"code", "workers"}} == counts
