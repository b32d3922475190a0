"""The queue of a workspace: its waiting runs in the order in which passes take them, with what is kept for them."""

from dataclasses import dataclass
from typing import Any

from django.db.models import F, Min, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.numbers import number_read
from console.pages.errors import is_fragment, page
from console.pages.run_list import PAGE_SIZE, RunRow, run_row, runs_for_rows, runs_queued
from console.pages.scope import workspace_scope
from machines.models import Machine
from placement.phrases import plural
from runs.models import Reservation, Run
from tenancy.models import Workspace

NAMES_SHOWN = 4
"""Machines of a reservation that are named; the others are counted."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a pass keeps for a run."""

    machines: str
    reservation: Reservation


@dataclass(frozen=True, slots=True)
class Waiting:
    row: RunRow
    position: int | None
    """In the cluster's queue, other workspaces' runs counted; None: no pass has looked at it yet."""
    kind: str
    kept: Kept | None


@dataclass(frozen=True, slots=True)
class QueuePage:
    rows: list[Waiting]
    number: int
    """From 1."""
    total: int

    @property
    def shown(self) -> str:
        return ",".join(str(each.row.run.id) for each in self.rows)

    @property
    def first(self) -> int:
        return (self.number - 1) * PAGE_SIZE + 1

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1

    @property
    def earlier(self) -> int | None:
        return self.number - 1 if self.number > 1 else None

    @property
    def later(self) -> int | None:
        return self.number + 1 if self.last < self.total else None


@page
@require_safe
def queue(request: HttpRequest, organization: str, workspace: str) -> HttpResponse:
    scope = workspace_scope(request, organization, workspace)
    number = max(1, min(number_read(request.GET.get("page", "")) or 1, 10_000))
    found = queue_page(scope.here, number)
    context = {"scope": scope, "section": "runs", "page": found, "queued": found.total}
    if is_fragment(request):
        moved = request.GET.get("shown", "") != found.shown
        return render(request, "runs/queue.html#live", {**context, "moved": moved, "oob": True})
    return render(request, "runs/queue.html", context)


def queue_page(workspace: Workspace, number: int) -> QueuePage:
    queued = runs_queued(workspace)
    runs = list(_in_order(queued)[(number - 1) * PAGE_SIZE : number * PAGE_SIZE])
    kept = _kept(runs)
    rows = [Waiting(run_row(run), run.position, run.kind, kept.get(run.id)) for run in runs]
    return QueuePage(rows, number, queued.count())


def _in_order(runs: QuerySet[Run]) -> QuerySet[Any]:
    """An independent run stands where the first of its waiting workers does."""
    children = Run.objects.waiting().filter(parent=OuterRef("id")).order_by().values("parent")
    first = Subquery(children.annotate(first=Min("queue_position")).values("first"))
    kind = Subquery(
        Run.objects.waiting()
        .filter(parent=OuterRef("id"))
        .order_by("queue_position", "id")
        .values("wait_kind")[:1]
    )
    told = runs_for_rows(runs).annotate(
        position=Coalesce("queue_position", first), kind=Coalesce(kind, "wait_kind")
    )
    return told.order_by(F("position").asc(nulls_last=True), "-priority", "queued_at", "id")


def _kept(runs: list[Any]) -> dict[int, Kept]:
    """By run."""
    reservations = list(Reservation.objects.filter(run__in=[run.id for run in runs]))
    ids = {machine for each in reservations for machine in each.machines[:NAMES_SHOWN]}
    names = dict(Machine.objects.filter(id__in=ids).values_list("id", "name"))
    return {each.run_id: Kept(_named(each.machines, names), each) for each in reservations}


def _named(machines: list[int], names: dict[int, str]) -> str:
    """`gpu-01, gpu-02 and 3 machines more`; one that was removed meanwhile is only counted."""
    shown = [names[each] for each in machines[:NAMES_SHOWN] if each in names]
    rest = len(machines) - len(shown)
    return " and ".join(filter(None, [", ".join(shown), f"{plural(rest, 'machine')} more" if rest else ""]))
