"""What `decide` sees of a run and its attempt: plain frozen values, read under the run's lock."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from machines.models import Machine
from machines.states import LOST_AFTER_SECONDS, UNREACHABLE_AFTER_SECONDS, Health
from runs.models import Allocation, Assignment, Run, RunAttempt
from runs.states import AttemptState, Phase, RunState, Wanted, WorkerState
from wire.spec import RunDocument, stored_document


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
    meets: bool
    """It is ready only after a check that the members run together."""
    checkable: bool
    """That check is all that is left before it is ready."""
    doubtful_gpus: tuple[int, ...]
    """Of a group that asked for healthy GPUs only: indices of those that show a warning sign by now."""
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
    preemption: dict[str, Any] | None
    """The reason to give its machines to another run."""
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
    """When the first member had nothing left but to wait for the others."""
    opened_at: datetime | None
    running_at: datetime | None

    on_failure: str
    max_restarts: int
    barrier_timeout_seconds: int
    time_limit_seconds: int | None
    members: tuple[Member, ...]


def view_load(run: Run, attempt: RunAttempt, now: datetime) -> AttemptView:
    """Reads the attempt. The caller holds the locks of run and attempt."""
    document = stored_document(run.document)
    assignments = attempt.assignments.select_related("worker", "machine").order_by("worker__rank")
    doubtful = _doubtful_gpus(attempt, document) if attempt.state == AttemptState.STARTING else {}
    return AttemptView(
        now=now,
        run_state=RunState(run.state),
        wanted=Wanted(run.wanted),
        stopped_by=run.stopped_by,
        restart_asked=run.restart_asked,
        preemption=run.preemption,
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
        first_ready_at=min(filter(None, (a.checkable_at or a.ready_at for a in assignments)), default=None),
        opened_at=attempt.opened_at,
        running_at=attempt.running_at,
        on_failure=document.spec.on_failure,
        max_restarts=document.spec.max_restarts,
        barrier_timeout_seconds=document.spec.barrier_timeout_seconds,
        time_limit_seconds=document.time_limit_seconds,
        members=tuple(_member(each, document, now, doubtful.get(each.id, ())) for each in assignments),
    )


def _doubtful_gpus(attempt: RunAttempt, document: RunDocument) -> dict[UUID, tuple[int, ...]]:
    """By assignment of a group that asked for healthy GPUs only: those that are not, by now."""
    wanted = {group.name: group.template.requested_resources.gpu_requests for group in document.groups()}
    healthy_only = [name for name, gpus in wanted.items() if gpus and gpus.healthy_only]
    if not healthy_only:
        return {}
    rows = (
        Allocation.objects.filter(
            assignment__attempt=attempt, assignment__worker__group__in=healthy_only, released_at=None
        )
        .filter(gpu__isnull=False)
        .exclude(gpu__health=Health.HEALTHY)
        .order_by("gpu__index")
        .values_list("assignment_id", "gpu__index")
    )
    found: dict[UUID, tuple[int, ...]] = {}
    for assignment, index in rows:
        found[assignment] = (*found.get(assignment, ()), index)
    return found


def _member(
    assignment: Assignment, document: RunDocument, now: datetime, doubtful_gpus: tuple[int, ...]
) -> Member:
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
        meets=bool((assignment.launch.get("preflight") or {}).get("meets")),
        checkable=assignment.checkable_at is not None,
        doubtful_gpus=doubtful_gpus,
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
    over = cut_off + document.stop_grace_seconds + UNREACHABLE_AFTER_SECONDS
    return max(given_up, heard + timedelta(seconds=over))
