"""What agents report about their assignments. Reports only write their own rows; `gang/` alone decides.

Everything here may come twice, late or out of order: states only rise, notes are numbered, and what was
released stays released.
"""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction

from common.clock import database_now
from common.nudge import publish_on_commit, task_send_on_commit
from machines.models import Machine
from machines.services import machines_revise
from machines.signals import cluster_changed
from machines.states import LOST_AFTER_SECONDS, UNREACHABLE_AFTER_SECONDS
from placement.phrases import and_list
from runs.events import LIVE_CHANNEL, WorkerMove, run_announce, workers_move
from runs.exports import exports_end
from runs.launch import features_needed
from runs.models import Allocation, Assignment, WorkerEvent
from runs.states import WORKER_ENDED, AttemptState, Phase, WorkerState
from wire.agent_messages import AssignmentReport, Exit, Note, Observed
from wire.assignments import FEATURE_NAMES

ORDER = (
    WorkerState.PLACED,
    WorkerState.PREPARING,
    WorkerState.READY,
    WorkerState.RUNNING,
    WorkerState.STOPPING,
)
SIMPLE_REASONS = {
    WorkerState.RUNNING: "worker_running",
    WorkerState.STOPPING: "worker_stopping",
    WorkerState.SUCCEEDED: "worker_succeeded",
    WorkerState.STOPPED: "worker_stopped",
}
REPORTED = {
    "preparing": WorkerState.PREPARING,
    "ready": WorkerState.READY,
    "running": WorkerState.RUNNING,
    "stopping": WorkerState.STOPPING,
}


@transaction.atomic
def reports_apply(
    *, machine_id: int, observed: Observed, applied_revision: int | None, skew: timedelta
) -> None:
    """Takes over the reports of one machine. `skew` is added to the agent's times.

    `applied_revision`: assignments up to it that are not reported are lost. None: absence says nothing.
    """
    reported = {report.id: report for report in observed.assignments}
    gone = []
    for assignment in _held(machine_id):
        report = reported.get(str(assignment.id))
        if report is not None:
            _report_apply(assignment, _able(assignment, report, observed.inventory.features), skew)
            gone += [assignment] if report.gone else []
        elif applied_revision is not None and assignment.revision <= applied_revision:
            _unknown_to_agent(assignment)
    if gone:
        _release(gone)


def _held(machine_id: int) -> list[Assignment]:
    """Those of the machine that may still be there. Ended ones are settled: their reports change nothing."""
    rows = Assignment.objects.held().filter(machine_id=machine_id)
    return list(
        rows.select_related("attempt__run", "worker", "machine")
        .select_for_update(of=("self",))
        .order_by("id")
    )


def _able(assignment: Assignment, report: AssignmentReport, features: Collection[str]) -> AssignmentReport:
    """The report, or, from an agent too old for a part of what is asked for, that it can't prepare the worker.

    Such an agent would pass over what it doesn't know, and nobody would see that a probe is never tried. Until it
    is ready a worker is never told to start, so this comes in time.
    """
    missing = features_needed(assignment.launch) - set(features)
    if not missing or assignment.phase != Phase.PREPARE or report.state == "ended":
        return report
    parts = and_list([FEATURE_NAMES[feature] for feature in sorted(missing)])
    machine = assignment.machine.name
    message = f"The agent of {machine} is too old for {parts}. Update it there, or leave them out."
    return report.model_copy(update={"state": "ended", "exit": Exit(kind="not_prepared", message=message)})


def _report_apply(assignment: Assignment, report: AssignmentReport, skew: timedelta) -> None:
    _notes_store(assignment, report.notes, skew)
    state = _state_of(assignment, report)
    fields = _times(assignment, report, skew)
    if report.detail != assignment.detail:
        fields["detail"] = report.detail
    if report.exit is not None and (assignment.exit is None or _overtaken(assignment, report.exit)):
        fields["exit"] = report.exit.model_dump(exclude_defaults=True, exclude={"kind"}) | {
            "kind": report.exit.kind
        }
    if report.gone:
        fields["log_final"] = report.log_size
    moved = _rises(WorkerState(assignment.state), state)
    if moved:
        fields["state"] = state
    if fields:
        _save(assignment, **fields)
        _worker_follow(assignment)
        if (
            state != WorkerState.PREPARING or "checkable_at" in fields
        ):  # nothing else of that decides anything
            _advance(assignment)


def _overtaken(assignment: Assignment, exit_: Exit) -> bool:
    """A worker that was given up as lost has told how it really ended."""
    return (assignment.exit or {}).get("kind") == "lost" and exit_.kind != "lost"


def _save(assignment: Assignment, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(assignment, name, value)
    assignment.save(update_fields=list(fields))


def _state_of(assignment: Assignment, report: AssignmentReport) -> WorkerState:
    if report.state != "ended":
        return REPORTED[report.state]
    return ended_state(report.exit or Exit(kind="lost"), ordered=assignment.phase == Phase.STOP)


def ended_state(exit_: Exit, *, ordered: bool) -> WorkerState:
    """How a worker ended. `ordered`: a stop had been ordered, so its exit code says nothing about failure."""
    if exit_.kind == "exited" and exit_.code == 0:
        return WorkerState.SUCCEEDED
    if exit_.kind == "stopped" or (exit_.kind == "exited" and ordered):
        return WorkerState.STOPPED
    return WorkerState.LOST if exit_.kind == "lost" else WorkerState.FAILED


def _rises(old: WorkerState, new: WorkerState) -> bool:
    if old in WORKER_ENDED:
        return old == WorkerState.LOST and new in WORKER_ENDED - {WorkerState.LOST}
    return new in WORKER_ENDED or ORDER.index(new) > ORDER.index(old)


def _times(assignment: Assignment, report: AssignmentReport, skew: timedelta) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("checkable_at", "ready_at", "started_at", "ended_at"):
        value = getattr(report, name)
        if value is not None and getattr(assignment, name) is None:
            found[name] = datetime.fromtimestamp(value, UTC) + skew
    return found


def _notes_store(assignment: Assignment, notes: Iterable[Note], skew: timedelta) -> None:
    rows = [
        WorkerEvent(
            worker_id=assignment.worker_id,
            assignment=assignment,
            at=datetime.fromtimestamp(note.at, UTC) + skew,
            attempt_no=assignment.attempt.number,
            state=assignment.state,
            reason={"code": "note", "text": note.text},
            note_number=note.number,
        )
        for note in notes
    ]
    WorkerEvent.objects.bulk_create(rows, ignore_conflicts=True)


def _worker_follow(assignment: Assignment, reason: dict[str, Any] | None = None) -> None:
    """The worker shows its present assignment; an assignment of an attempt that is over changes nothing."""
    if assignment.attempt.state == AttemptState.ENDED:
        return
    reason = reason or _reason_of(assignment)
    move = WorkerMove(assignment.worker, WorkerState(assignment.state), reason, assignment)
    workers_move([move], attempt_no=assignment.attempt.number, at=database_now())
    run_announce(assignment.attempt.run)


def _reason_of(assignment: Assignment) -> dict[str, Any]:
    machine = assignment.machine.name
    state = WorkerState(assignment.state)
    if state in SIMPLE_REASONS:
        detail = {"detail": assignment.detail} if assignment.detail else {}
        return {"code": SIMPLE_REASONS[state], "machine": machine, **detail}
    if state == WorkerState.PREPARING:
        return {"code": "preparing", "detail": assignment.detail}
    if state == WorkerState.READY:
        return {"code": "ready", "gang": assignment.launch.get("gang", False)}
    memory = assignment.launch.get("memory_bytes", 0)
    return {"code": "exited", "machine": machine, "exit": assignment.exit or {}, "memory_bytes": memory}


def _advance(assignment: Assignment) -> None:
    from runs import tasks

    task_send_on_commit(tasks.run_advance, assignment.attempt.run_id)
    if assignment.ended_at is not None:
        publish_on_commit(LIVE_CHANNEL, f"log:{assignment.id}")


def _release(assignments: Collection[Assignment]) -> None:
    """The process trees of these, of one machine, are gone: what they held is free."""
    now = database_now()
    for assignment in assignments:
        _save(assignment, gone_at=now)
    Allocation.objects.filter(assignment__in=assignments, released_at=None).update(released_at=now)
    machine = next(iter(assignments)).machine
    exports_end(machine.id, assignments)
    machines_revise([machine.id], placement_changed=True)
    cluster_changed.send(sender=Assignment, cluster_id=machine.cluster_id)


def _unknown_to_agent(assignment: Assignment) -> None:
    """Its agent has applied a state with this assignment and reports none: the agent's journal is lost."""
    if assignment.state in WORKER_ENDED:
        return
    message = f"{assignment.machine.name}'s agent no longer knows this worker"
    _mark_lost(assignment, {"kind": "lost", "message": message})


def _mark_lost(assignment: Assignment, exit_: dict[str, Any], reason: dict[str, Any] | None = None) -> None:
    _save(assignment, state=WorkerState.LOST, exit=exit_)
    _worker_follow(assignment, reason)
    _advance(assignment)


def assignments_sweep_lost() -> None:
    """Workers of machines that stayed unreachable are Lost. What they hold stays held until they are gone."""
    limit = database_now() - timedelta(seconds=LOST_AFTER_SECONDS)
    machines = Machine.objects.filter(unreachable_at__lte=limit, assignments__gone_at=None)
    for machine in machines.distinct():
        _machine_lose(machine, limit)


@transaction.atomic
def _machine_lose(machine: Machine, limit: datetime) -> None:
    held = _held(machine.id)
    if not Machine.objects.select_for_update().filter(id=machine.id, unreachable_at__lte=limit).exists():
        return  # it was heard a moment ago
    seconds = UNREACHABLE_AFTER_SECONDS + LOST_AFTER_SECONDS
    silent = {"code": "lost", "machine": machine.name, "seconds": seconds}
    for assignment in held:
        if assignment.state not in WORKER_ENDED:
            exit_ = {"kind": "lost", "message": f"{machine.name} has not been heard from"}
            _mark_lost(assignment, exit_, silent)
