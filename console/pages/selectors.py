"""What the pages read: composed from runs and machines, in a fixed number of queries."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from console.pages.words import gpus_words
from placement import words
from runs.models import Allocation, Assignment, Run, RunAttempt, Worker
from runs.presentation import (
    assignment_shown,
    attempt_shown,
    run_get,
    run_reason,
    worker_reason,
    workers_ranked,
)
from runs.reasons import word
from runs.states import RUN_ENDED, RunState, Wanted
from tenancy.models import Workspace


@dataclass(frozen=True, slots=True)
class Step:
    """A point of the timeline. `at` is None while it lies ahead."""

    name: str
    at: datetime | None
    took: float | None
    """Seconds since the step before."""
    now: bool
    """The run is on its way here."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    worker: Worker
    machine: str
    gpus: str
    assignment: Assignment | None

    @property
    def reason(self) -> str:
        """Put into words when it is shown: there may be hundreds."""
        return worker_reason(self.worker)


@dataclass(frozen=True, slots=True)
class EventRow:
    at: datetime
    attempt: int
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with everything that its page shows."""

    run: Run
    reason: str
    attempt: RunAttempt | None
    network: str
    workers: list[WorkerRow]
    steps: list[Step]
    events: list[EventRow] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.run.state in RUN_ENDED

    @property
    def waits(self) -> bool:
        return self.run.state == RunState.PENDING

    @property
    def waits_as_one(self) -> bool:
        """Its workers wait for one another, so that there is nothing to be said of each."""
        return self.waits and not self.run.independent

    @property
    def may_restart(self) -> bool:
        """Whether a restart would do anything. Who may do it is the scope's matter; so below."""
        busy = self.waits or self.run.state == RunState.STOPPING
        return not busy and self.run.wanted != Wanted.DELETE

    @property
    def may_delete(self) -> bool:
        return self.run.wanted != Wanted.DELETE

    @property
    def failed(self) -> str:
        """Name of the worker that failed first, in a run that failed; else empty."""
        reason = self.run.reason
        told = reason.get("worker") or reason.get("cause", {}).get("worker")
        return str(told) if told and self.run.state == RunState.FAILED else ""


EVENTS_SHOWN = 200


def run_view(workspace: Workspace, cluster: str, name: str) -> RunView:
    """Raises NotFound."""
    return run_compose(run_get(workspace=workspace, name=name, cluster=cluster))


def run_compose(run: Run) -> RunView:
    """`run` as loaded by `runs_for_display`."""
    ranked = workers_ranked(run)
    placed = attempt_shown(run)
    shown = {worker.id: assignment_shown(worker) for worker in ranked}
    gpus = gpu_indices([each for each in shown.values() if each])
    return RunView(
        run=run,
        reason=run_reason(run),
        attempt=placed,
        network=words.verdict_words(placed.network) if placed else "",
        workers=[_worker_row(worker, shown[worker.id], gpus) for worker in ranked],
        steps=timeline(run, placed),
        events=events_rows(run.events.order_by("-id")[:EVENTS_SHOWN]),
    )


def _worker_row(worker: Worker, assignment: Assignment | None, gpus: dict[str, list[int]]) -> WorkerRow:
    return WorkerRow(
        worker=worker,
        machine=assignment.machine.name if assignment else "",
        gpus=gpus_words(gpus[str(assignment.id)]) if assignment else "",
        assignment=assignment,
    )


def gpu_indices(assignments: Iterable[Assignment]) -> dict[str, list[int]]:
    """Assignment id → indices of the GPUs that it holds or held."""
    found: dict[str, list[int]] = defaultdict(list)
    rows = Allocation.objects.filter(assignment__in=list(assignments), gpu__isnull=False)
    for assignment_id, index in rows.values_list("assignment_id", "gpu__index").order_by("gpu__index"):
        found[str(assignment_id)].append(index)
    return found


def events_rows(newest_first: Iterable[Any]) -> list[EventRow]:
    """Events in the order in which they happened."""
    rows = [EventRow(each.at, each.attempt_no, each.state, word(each.reason)) for each in newest_first]
    return rows[::-1]


def timeline(run: Run, attempt: RunAttempt | None) -> list[Step]:
    """queued → placed → ready → running, and the end once there is one.

    Where workers start on their own: when the first of them got there; none waits for others to be ready.
    """
    points: list[tuple[str, datetime | None]] = [("queued", run.queued_at)]
    if run.independent:
        points += [("placed", run.placed_at), ("running", run.started_at)]
    else:
        points += [
            ("placed", attempt.placed_at if attempt else None),
            ("ready", attempt.opened_at if attempt else None),
            ("running", attempt.running_at if attempt else None),
        ]
    if run.state in RUN_ENDED:
        points = [point for point in points if point[1] is not None]
        points.append((run.state.lower(), run.ended_at))
    steps: list[Step] = []
    before: datetime | None = None
    for name, at in points:
        took = (at - before).total_seconds() if at and before else None
        steps.append(Step(name, at, took, now=at is None and before is not None))
        before = at
    return steps
