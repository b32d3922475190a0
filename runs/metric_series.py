"""A run's metrics as series: of each name and worker the values by step, for its charts and for programs."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from django.db.models import OuterRef, Q, Subquery

from runs.metrics import MOST_SAMPLES
from runs.models import MetricSample, Run, RunAttempt

Points = list[tuple[int, float]]
"""Steps, ascending, each with its value, which may be NaN or infinite."""


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    worker: str
    attempt: int
    points: Points
    """At least one."""


def run_series(
    run: Run, *, names: Collection[str] = (), workers: Collection[str] = (), from_step: int = 0
) -> list[Series]:
    """Of the run's newest attempt, by name and then by rank; empty `names` or `workers` mean all of them."""
    asked = Q(step__gte=from_step)
    if names:
        asked &= Q(name__in=names)
    if workers:
        asked &= Q(assignment__worker__name__in=workers)
    return list(_series(_newest(run) & asked))


def _series(which: Q) -> Iterator[Series]:
    samples = MetricSample.objects.filter(which).order_by(
        "name", "assignment__worker__rank", "assignment__worker__name", "step"
    )
    rows = samples.values_list(
        "name", "assignment__worker__name", "assignment__attempt__number", "step", "value"
    )[:MOST_SAMPLES]
    for (name, worker, attempt), found in groupby(rows, itemgetter(0, 1, 2)):
        yield Series(name, worker, attempt, [(step, value) for *_, step, value in found])


def _newest(run: Run) -> Q:
    """Workers that start on their own have attempts of their own."""
    newest = RunAttempt.objects.filter(run=OuterRef("assignment__attempt__run")).order_by("-number")
    return Q(
        assignment__attempt__run__in=Run.objects.family(run.id),
        assignment__attempt=Subquery(newest.values("id")[:1]),
    )


def thinned(points: Points, most: int) -> Points:
    """At most `most` of them, evenly picked, with the first and the last one; of 1 it is the last one."""
    if len(points) <= most:
        return points
    if most == 1:
        return points[-1:]
    every = -(-(len(points) - 1) // (most - 1))
    return [*points[:-1:every], points[-1]]
