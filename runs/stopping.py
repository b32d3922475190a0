"""Several runs stopped at once: what that would do now, and doing it run by run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Q
from django.db.models.functions import Coalesce

from common.errors import NotFound
from runs.models import Allocation, Run
from runs.services import run_stop
from runs.states import RUN_ENDED, RunState
from tenancy.access import Actor
from tenancy.models import Workspace

MOST = 100
"""Runs of one request: each is stopped in a transaction of its own while the person waits."""


@dataclass(frozen=True, slots=True)
class Picked:
    """A run as somebody picked it: one that is gone meanwhile is still called by its name."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Stoppable:
    run: Run
    gpus: int
    """Those that it holds now."""


@dataclass(frozen=True, slots=True)
class Left:
    """A run that a stop does nothing to, and why: `ended already: Failed`."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class StopOutlook:
    """What stopping the picked runs would do, as of one moment; each list in the order in which they were picked."""

    stops: list[Stoppable]
    left: list[Left]


def stop_outlook(workspace: Workspace, picked: Sequence[Picked]) -> StopOutlook:
    """Runs of other workspaces are as good as gone here."""
    found = _found(workspace, picked)
    held = _gpus_held([each.id for each in found.values()])
    stops, left = [], []
    for each in picked:
        run = found.get(each.id)
        if why := _why_left(run):
            left.append(Left(each.name if run is None else run.name, why))
        elif run is not None:
            stops.append(Stoppable(run, held[run.id]))
    return StopOutlook(stops, left)


def runs_stop(workspace: Workspace, actor: Actor, picked: Sequence[Picked]) -> StopOutlook:
    """Stops those that can be, each by itself: one that can't fails no other. Says what was done. Idempotent."""
    outlook = stop_outlook(workspace, picked)
    stopped, left = [], list(outlook.left)
    for each in outlook.stops:
        if why := _stop(each.run, actor):
            left.append(Left(each.run.name, why))
        else:
            stopped.append(each)
    return StopOutlook(stopped, left)


def _found(workspace: Workspace, picked: Sequence[Picked]) -> dict[int, Run]:
    runs = Run.objects.of(workspace).filter(id__in=[each.id for each in picked])
    rows = runs.select_related("workspace__organization", "cluster").defer("document", "submitted")
    return {run.id: run for run in rows}


def _gpus_held(run_ids: list[int]) -> Counter[int]:
    """By run; what the children of an independent run hold counts as their parent's."""
    families = Run.objects.filter(Q(id__in=run_ids) | Q(parent__in=run_ids))
    held = Allocation.objects.filter(
        assignment__attempt__run__in=families, gpu__isnull=False, released_at=None
    )
    of = Coalesce("assignment__attempt__run__parent", "assignment__attempt__run")
    return Counter(dict(held.values_list(of).annotate(Count("id")).order_by()))


def _why_left(run: Run | None) -> str:
    """Empty where a stop would do something."""
    if run is None:
        return "no longer here"
    if run.stoppable:
        return ""
    return f"ended already: {RunState(run.state)}" if run.state in RUN_ENDED else "being stopped already"


def _stop(run: Run, actor: Actor) -> str:
    """Why it was not stopped, though it could be a moment ago; else empty."""
    try:
        if run_stop(run=run, actor=actor):
            return ""
    except NotFound:
        return _why_left(None)
    return "ended a moment ago"
