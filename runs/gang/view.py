"""What `decide` sees of a run and its attempt: plain frozen values, read under the run's lock."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from machines.models import Machine
from machines.states import LOST_AFTER_SECONDS, UNREACHABLE_AFTER_SECONDS
from runs.models import Assignment, Run, RunAttempt
from runs.states import AttemptState, Phase, RunState, Wanted, WorkerState
from wire.spec import RunDocument, validate_document


@dataclass(frozen=True, slots=True)
class Member:
    """One assignment of the attempt."""

    id: str
    rank: int
    worker: str
    machine: str
    machine_id: int
    state: WorkerState
    phase: Phase
    started: bool
    """Its agent has reported that the process runs, or ran."""
    gone: bool
    """Its process tree has ended."""
    reachable: bool
    """Its agent was heard within 45 s."""
    surely_over_at: datetime | None
    """For a lost member: when nothing of it can run any more, as far as anybody can tell from here."""
    exit: dict[str, Any]
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class AttemptView:
    """A run that is placed, its attempt and all its members, at one instant of the database's clock."""

    now: datetime
    run_state: RunState
    wanted: Wanted
    stopped_by: str
    restart_asked: bool
    restarts: int
    backoff_step: int
    voids: int
    voids_of_any_kind: int
    void_kind: str

    number: int
    state: AttemptState
    outcome: str
    reason: dict[str, Any]
    placed_at: datetime
    first_ready_at: datetime | None
    opened_at: datetime | None
    running_at: datetime | None

    on_failure: str
    max_restarts: int
    barrier_timeout_seconds: int
    time_limit_seconds: int | None
    members: tuple[Member, ...]


def view_load(run: Run, attempt: RunAttempt, now: datetime) -> AttemptView:
    """Reads the attempt. The caller holds the locks of run and attempt."""
    document = validate_document(run.document)
    assignments = attempt.assignments.select_related("worker", "machine").order_by("worker__rank")
    return AttemptView(
        now=now,
        run_state=RunState(run.state),
        wanted=Wanted(run.wanted),
        stopped_by=run.stopped_by,
        restart_asked=run.restart_asked,
        restarts=run.restarts,
        backoff_step=run.backoff_step,
        voids=run.voids,
        voids_of_any_kind=run.voids_of_any_kind,
        void_kind=run.void_kind,
        number=attempt.number,
        state=AttemptState(attempt.state),
        outcome=attempt.outcome,
        reason=attempt.reason,
        placed_at=attempt.placed_at,
        first_ready_at=min((a.ready_at for a in assignments if a.ready_at), default=None),
        opened_at=attempt.opened_at,
        running_at=attempt.running_at,
        on_failure=document.spec.on_failure,
        max_restarts=document.spec.max_restarts,
        barrier_timeout_seconds=document.spec.barrier_timeout_seconds,
        time_limit_seconds=_time_limit(document),
        members=tuple(_member(assignment, document, now) for assignment in assignments),
    )


def _time_limit(document: RunDocument) -> int | None:
    limits = [g.template.time_limit_seconds for g in document.groups() if g.template.time_limit_seconds]
    return min(limits, default=None)


def _member(assignment: Assignment, document: RunDocument, now: datetime) -> Member:
    machine = assignment.machine
    return Member(
        id=str(assignment.id),
        rank=assignment.worker.rank,
        worker=assignment.worker.name,
        machine=machine.name,
        machine_id=machine.id,
        state=WorkerState(assignment.state),
        phase=Phase(assignment.phase),
        started=assignment.started_at is not None,
        gone=assignment.gone_at is not None,
        reachable=machine.unreachable_at is None,
        surely_over_at=_surely_over_at(machine, document, now),
        exit=assignment.exit or {},
        memory_bytes=assignment.launch.get("memory_bytes", 0),
    )


def _surely_over_at(machine: Machine, document: RunDocument, now: datetime) -> datetime | None:
    """When a worker on an unreachable machine has been stopped by its own agent, or may be given up on."""
    if machine.unreachable_at is None:
        return None
    heard = machine.unreachable_at - timedelta(seconds=UNREACHABLE_AFTER_SECONDS)
    given_up = machine.unreachable_at + timedelta(seconds=LOST_AFTER_SECONDS)
    cut_off = document.spec.stop_when_cut_off_seconds
    if cut_off is None:
        return min(given_up, now)
    grace = max(group.template.stop_grace_seconds for group in document.groups())
    return max(given_up, heard + timedelta(seconds=cut_off + grace + UNREACHABLE_AFTER_SECONDS))
