"""Carries out what `decide` said, under the locks of run and attempt."""

import time
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from common.clock import database_now
from common.nudge import task_send_on_commit
from machines.services import machines_revise
from machines.signals import cluster_changed
from runs.events import run_move, run_note
from runs.gang.decide import Check, Close, Decision, End, NowRunning, Open, Wait, decide
from runs.gang.view import view_load
from runs.independent.apply import families_due, family_step
from runs.lemons import failures_note
from runs.models import Assignment, Run, RunAttempt
from runs.queue import NOT_QUEUED, runs_leave_queue
from runs.states import (
    RUN_ACTIVE,
    RUN_ENDED,
    WORKER_ENDED,
    AttemptState,
    Phase,
    RunState,
    Wanted,
    WorkerState,
)
from runs.workers import workers_reset

AVOID_SECONDS = 1800
"""How long a machine on which an attempt failed is used last for this run."""
STEPS_AT_ONCE = 6
"""An attempt's life has five states; more steps in a row would be a loop."""


def run_advance(run_id: int) -> None:
    """Looks at a run and does what is due, step by step until only waiting is left. Idempotent."""
    for _ in range(STEPS_AT_ONCE):
        if not _step(run_id):
            return


@transaction.atomic
def _step(run_id: int) -> bool:
    """One decision; True when it changed something that may call for the next."""
    # "No key": who writes a row that refers to these must not wait for us while we wait for that row.
    run = Run.objects.select_for_update(no_key=True).filter(id=run_id).first()
    if run is None or run.state in RUN_ENDED:
        return _remove_if_deleted(run)
    if run.independent:
        return family_step(run)
    attempts = RunAttempt.objects.select_for_update(no_key=True).filter(run=run)
    attempt = attempts.exclude(state=AttemptState.ENDED).first()
    if attempt is None:
        return _withdraw(run)
    decision = decide(view_load(run, attempt, database_now()))
    return _apply(run, attempt, decision)


def _remove_if_deleted(run: Run | None) -> bool:
    from runs import tasks

    if run is not None and run.wanted == Wanted.DELETE:
        task_send_on_commit(tasks.run_remove, run.id)
    return False


def _withdraw(run: Run) -> bool:
    """A waiting run that its owner stops or deletes leaves the queue."""
    if run.wanted == Wanted.RUN or run.state != RunState.PENDING:
        return False
    reason = {"code": "stopped", "by": run.stopped_by}
    run.workers.filter(active=True).update(state=WorkerState.STOPPED, reason={})
    now = database_now()
    moved = run_move(run, RunState.STOPPED, reason, was=RunState.PENDING, ended_at=now, **NOT_QUEUED)
    runs_leave_queue([run.id], now)
    cluster_changed.send(sender=Run, cluster_id=run.cluster_id)
    return moved


def _apply(run: Run, attempt: RunAttempt, decision: Decision) -> bool:
    now = database_now()
    match decision:
        case Wait():
            _show(run, decision)
            return False
        case Check():
            _phase(attempt, Phase.CHECK)
            run_move(run, RunState.STARTING, decision.reason, was=RunState.STARTING)
            return False
        case Open():
            _open(run, attempt, decision, now)
            return False  # what comes next, members must report first
        case NowRunning():
            _running(run, attempt, decision, now)
        case End():
            _end(run, attempt, decision, now)
        case Close():
            _close(run, attempt, decision, now)
    return True


def _show(run: Run, decision: Wait) -> None:
    if (run.state, run.reason) != (decision.run_state, decision.reason):
        run_move(run, decision.run_state, decision.reason, was=RunState(run.state))


def _set(attempt: RunAttempt, state: AttemptState, **fields: Any) -> None:
    for name, value in {"state": state, **fields}.items():
        setattr(attempt, name, value)
    attempt.save(update_fields=["state", *fields])


def _open(run: Run, attempt: RunAttempt, decision: Open, now: datetime) -> None:
    limit = decision.time_limit_seconds
    _set(
        attempt,
        AttemptState.OPENED,
        opened_at=now,
        time_limit_at=now + timedelta(seconds=limit) if limit else None,
    )
    _phase(attempt, Phase.START)
    run_move(run, RunState.STARTING, decision.reason, was=RunState.STARTING)
    run_note(run, decision.reason)


def _running(run: Run, attempt: RunAttempt, decision: NowRunning, now: datetime) -> None:
    _set(attempt, AttemptState.RUNNING, running_at=now)
    fields: dict[str, Any] = {"voids": 0, "voids_of_any_kind": 0, "void_kind": ""}
    if run.started_at is None:
        fields["started_at"] = now
    run_move(run, RunState.RUNNING, decision.reason, was=RunState(run.state), **fields)


def _end(run: Run, attempt: RunAttempt, decision: End, now: datetime) -> None:
    _set(attempt, AttemptState.ENDING, outcome=decision.outcome, reason=decision.reason, ending_at=now)
    _phase(attempt, Phase.STOP)
    until = time.time() + AVOID_SECONDS
    avoid = {**run.avoid_machines, **{str(machine): until for machine in decision.avoid}}
    failures_note(run, decision.avoid, decision.reason, now)
    changes: dict[str, Any] = {"avoid_machines": avoid, "restart_asked": False}
    if not attempt.assignments.held().exists():
        Run.objects.filter(id=run.id).update(**changes)  # nothing to stop: the next step closes the attempt
        return
    workers = attempt.assignments.count()
    stopping = {"code": "stopping", "ended": workers - attempt.assignments.held().count(), "workers": workers}
    was = RunState(run.state)
    run_move(run, RunState.STOPPING, stopping, was=was, history=decision.reason, **changes)


def _phase(attempt: RunAttempt, phase: Phase) -> None:
    """Tells the agents of members that are still there. Only ever rises."""
    members = attempt.assignments.held().exclude(phase=Phase.STOP)
    machines = list(members.values_list("machine_id", flat=True))
    members.update(phase=phase)
    machines_revise(machines, placement_changed=False)


def _close(run: Run, attempt: RunAttempt, decision: Close, now: datetime) -> None:
    _set(attempt, AttemptState.ENDED, ended_at=now)
    fields: dict[str, Any] = {
        "not_before": decision.not_before,
        "restarts": decision.restarts,
        "backoff_step": decision.backoff_step,
        "voids": decision.voids,
        "voids_of_any_kind": decision.voids_of_any_kind,
        "void_kind": decision.void_kind,
        "restart_asked": False,
        "preemption": None,
    }
    if decision.run_state == RunState.PENDING:
        workers_reset(run)
        fields |= {"placed_at": None}
    else:
        fields["ended_at"] = now
    run_move(run, decision.run_state, decision.reason, was=RunState(run.state), **fields)
    cluster_changed.send(sender=Run, cluster_id=run.cluster_id)


def attempts_sweep() -> None:
    """Looks at every run for which something may be due: no lost nudge stops a run."""
    for run_id in _due().values_list("id", flat=True):
        run_advance(run_id)
    for run_id in families_due():
        run_advance(run_id)


def _due() -> QuerySet[Run]:
    """Those placed or withdrawn, less the ones that run undisturbed: there may be thousands of them."""
    active = RunAttempt.objects.filter(run=OuterRef("id")).exclude(state=AttemptState.ENDED)
    ended = Assignment.objects.filter(attempt__run=OuterRef("id"), state__in=WORKER_ENDED).exclude(
        attempt__state=AttemptState.ENDED
    )
    moving = active.exclude(state=AttemptState.RUNNING)
    over = active.filter(time_limit_at__lte=Now())
    asked = ~Q(wanted=Wanted.RUN) | Q(restart_asked=True) | Q(preemption__isnull=False)
    placed = Q(state__in=RUN_ACTIVE) & (Exists(moving) | Exists(over) | Exists(ended) | asked)
    withdrawn = Q(state=RunState.PENDING) & ~Q(wanted=Wanted.RUN)
    return Run.objects.filter(placed | withdrawn).order_by("id")
