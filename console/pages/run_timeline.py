"""How a run's attempts spent their time: from the queue to their end, stretch by stretch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Max, Min, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from runs.models import Assignment, Run, RunAttempt, RunEvent, WorkerEvent
from runs.states import Outcome, RunState
from wire.agent_messages import IMAGE_PULLED

MOST_ATTEMPTS = 12
"""Shown, the newest."""
WIDE, NARROWEST, GAP = 1000.0, 6.0, 2.0
"""Of the drawing: the longest attempt, a stretch that took no time to speak of, and between two."""
TONES = {
    "queued": "wait",
    "pulling the image": "move",
    "preparing": "move",
    "check": "move",
    "waiting for all": "move",
    "starting": "move",
    "running": "run",
    "stopping": "leave",
}
OUTCOMES: dict[str, str] = {
    Outcome.SUCCEEDED: "succeeded",
    Outcome.FAILED: "failed",
    Outcome.VOIDED: "never ran as a whole",
    Outcome.STOPPED: "stopped",
    Outcome.TIME_LIMIT: "time limit reached",
    Outcome.REQUEUED: "back to the queue",
}


@dataclass(frozen=True, slots=True)
class Stretch:
    name: str
    since: datetime
    seconds: float
    going_on: bool
    note: str = ""
    x: float = 0
    width: float = 0
    """Where the drawing shows it."""

    @property
    def tone(self) -> str:
        return TONES[self.name]


@dataclass(frozen=True, slots=True)
class AttemptLine:
    title: str
    """`Attempt 2`; of workers that start on their own with the worker's name."""
    outcome: str
    """How it ended; empty while it goes on."""
    stretches: list[Stretch]


@dataclass(frozen=True, slots=True)
class RunTimeline:
    lines: list[AttemptLine]
    """Oldest first."""
    left_out: int


Points = list[tuple[str, datetime | None, str]]
"""Name of a stretch, when it began (None: it did not, or not yet), and what is to be said of it."""


def run_timeline(run: Run) -> RunTimeline:
    """`run` as people see it: of an independent run its workers' attempts."""
    now = timezone.now()
    of_run = Q(run__in=Run.objects.family(run.id))
    found = list(_attempts(of_run).order_by("-placed_at")[: MOST_ATTEMPTS + 1])
    shown = found[:MOST_ATTEMPTS][::-1]
    queued = _queued_at(run, {attempt.run_id for attempt in shown})
    last = _last_ready(shown)
    lines = [_line(attempt, queued.get((attempt.run_id, attempt.number - 1)), last, now) for attempt in shown]
    if run.state == RunState.PENDING and not run.independent:
        lines.append(_waiting(run, queued.get((run.id, run.attempt_no)), now))
    left_out = _left_out(of_run, len(found))
    return RunTimeline(_drawn(lines), left_out)


def _attempts(of_run: Q) -> QuerySet[Any]:
    notes = WorkerEvent.objects.filter(assignment__attempt=OuterRef("id"), reason__code="note")
    pulled = notes.filter(reason__text__startswith=IMAGE_PULLED).order_by("-at")
    return RunAttempt.objects.filter(of_run).annotate(
        of_worker=F("run__parent_id"),
        members=Count("assignments"),
        checkable=Count("assignments", filter=Q(assignments__checkable_at__isnull=False)),
        check_at=Max("assignments__checkable_at"),
        ready_at=Min("assignments__ready_at"),
        pulled_at=Subquery(pulled.values("at")[:1]),
        worker_name=Min("assignments__worker__name"),
    )


def _left_out(of_run: Q, found: int) -> int:
    return RunAttempt.objects.filter(of_run).count() - MOST_ATTEMPTS if found > MOST_ATTEMPTS else 0


def _queued_at(run: Run, runs: Iterable[int]) -> dict[tuple[int, int], datetime]:
    """(run, attempts before) → since when it waited for the next one."""
    queued = {(run.id, 0): run.created_at}
    if run.independent:
        return {(each, 0): run.created_at for each in runs}
    events = RunEvent.objects.filter(run=run, state=RunState.PENDING, attempt_no__gt=0)
    again = events.values_list("attempt_no").annotate(at=Min("at"))
    return queued | {(run.id, number): at for number, at in again}


def _last_ready(attempts: Sequence[RunAttempt]) -> dict[int, str]:
    """Attempt → the member that all others waited for longest: `ddp-1 on gpu-02`."""
    ready = Assignment.objects.filter(attempt__in=attempts, ready_at__isnull=False)
    newest = ready.order_by("attempt_id", F("ready_at").desc()).distinct("attempt_id")
    names = newest.values_list("attempt_id", "worker__name", "machine__name")
    return {attempt: f"last {worker} on {machine}" for attempt, worker, machine in names}


def _line(attempt: Any, queued: datetime | None, last: dict[int, str], now: datetime) -> AttemptLine:
    gang = attempt.members > 1
    points: Points = [
        ("queued", queued, ""),
        ("pulling the image", attempt.placed_at if attempt.pulled_at else None, ""),
        ("preparing", attempt.pulled_at or attempt.placed_at, ""),
        ("check", attempt.check_at if attempt.checkable == attempt.members else None, ""),
        ("waiting for all", attempt.ready_at if gang else None, last.get(attempt.id, "")),
        ("starting", attempt.opened_at, ""),
        ("running", attempt.running_at, ""),
        ("stopping", attempt.ending_at, ""),
    ]
    title = f"Attempt {attempt.number}"
    if attempt.of_worker is not None:
        title = f"{attempt.worker_name}, attempt {attempt.number}"
    stretches = list(stretches_of(points, attempt.ended_at, now))
    return AttemptLine(title, OUTCOMES.get(attempt.outcome, ""), stretches)


def _waiting(run: Run, queued: datetime | None, now: datetime) -> AttemptLine:
    title = f"Attempt {run.attempt_no + 1}"
    return AttemptLine(title, "", list(stretches_of([("queued", queued or run.queued_at, "")], None, now)))


def stretches_of(points: Points, ended: datetime | None, now: datetime) -> Iterator[Stretch]:
    """Each lasts until the next one begins, the last one until the end, or until now.

    Clocks of several machines may disagree, and be set: none begins before the one before it, or after the end.
    """
    known: list[tuple[str, datetime, str]] = []
    for name, at, note in points:
        if at is not None:
            begun = min(at, ended or now)
            known.append((name, max(begun, known[-1][1]) if known else begun, note))
    for number, (name, since, note) in enumerate(known):
        following = known[number + 1][1] if number + 1 < len(known) else ended
        seconds = ((following or now) - since).total_seconds()
        yield Stretch(name, since, seconds, going_on=following is None, note=note)


def _drawn(lines: list[AttemptLine]) -> list[AttemptLine]:
    """All to one scale."""
    longest = max((sum(each.seconds for each in line.stretches) for line in lines), default=0) or 1
    most = max((len(line.stretches) for line in lines), default=0)
    scale = (WIDE - most * (NARROWEST + GAP)) / longest
    return [AttemptLine(line.title, line.outcome, _placed(line.stretches, scale)) for line in lines]


def _placed(stretches: list[Stretch], scale: float) -> list[Stretch]:
    placed, x = [], 0.0
    for each in stretches:
        width = round(NARROWEST + each.seconds * scale, 1)
        placed.append(
            Stretch(each.name, each.since, each.seconds, each.going_on, each.note, round(x, 1), width)
        )
        x += width + GAP
    return placed
