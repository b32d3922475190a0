"""The Runs page."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.http.request import QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.numbers import LARGEST, number_read
from console.pages.errors import is_fragment, page
from console.pages.scope import workspace_scope
from placement import words
from runs.models import Run, RunAttempt, RunQuerySet
from runs.presentation import reason_with, run_reason
from runs.states import RunState, Wanted
from tenancy.models import User, Workspace

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class Filters:
    """What the address asks for."""

    state: str
    owner: str
    label: str
    text: str

    def any(self) -> bool:
        return bool(self.state or self.owner or self.label or self.text)


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as a line of the list."""

    run: Run
    reason: str
    gpus: int
    network: str


@dataclass(frozen=True, slots=True)
class RunPage:
    rows: list[RunRow]
    newer: int | None
    """Cursor of the page before, None on the first."""
    older: int | None
    beyond: bool
    """A cursor is given behind which there is nothing."""

    @property
    def shown(self) -> str:
        return ",".join(str(row.run.id) for row in self.rows)

    @property
    def newest(self) -> int:
        return self.rows[0].run.id if self.rows else 0


@page
@require_safe
def run_list(request: HttpRequest, organization: str, workspace: str) -> HttpResponse:
    scope = workspace_scope(request, organization, workspace)
    filters = filters_read(request.GET)
    runs = runs_filtered(Run.objects.of(scope.here), filters)
    if is_fragment(request):
        context = _live(request, scope.here, runs)
        return render(request, "runs/list.html#live", {**context, "scope": scope})
    context = {
        "scope": scope,
        "section": "runs",
        "filters": filters,
        "states": list(RunState),
        "owners": owners(scope.here),
        "queued": runs_queued(scope.here).count(),
        "page": runs_page(runs, request.GET),
    }
    return render(request, "runs/list.html", context)


def runs_queued(workspace: Workspace) -> RunQuerySet:
    """Those that wait, as people see them: an independent run once, whatever its workers do."""
    return Run.objects.of(workspace).filter(state=RunState.PENDING, wanted=Wanted.RUN)


def owners(workspace: Workspace) -> list[str]:
    """User names of those who have runs there."""
    # Asked of each person, by the index: DISTINCT would read every run there ever was.
    theirs = Run.objects.of(workspace).filter(created_by=OuterRef("pk"))
    people = User.objects.filter(Exists(theirs.order_by()))
    return list(people.order_by("username").values_list("username", flat=True))


def _live(request: HttpRequest, workspace: Workspace, runs: QuerySet[Run]) -> dict[str, Any]:
    """The rows that the page shows, as they are now, and how many have come since."""
    shown = map(number_read, request.GET.get("shown", "").split(","))
    ids = [number for number in shown if number is not None][:PAGE_SIZE]
    newest = number_read(request.GET.get("newest", "0"))
    fresh = 0 if newest is None else runs.filter(id__gt=newest).count()
    address = request.GET.copy()
    for name in ("shown", "newest"):
        address.pop(name, None)
    return {
        "address": f"{request.path}?{address.urlencode()}" if address else request.path,
        "rows": [run_row(run) for run in runs_for_rows(Run.objects.of(workspace).filter(id__in=ids))],
        "fresh": fresh,
        "oob": True,
    }


def filters_read(params: QueryDict) -> Filters:
    state = params.get("state", "")
    return Filters(
        state=state if state in RunState.values else "",
        owner=params.get("owner", "").strip()[:150],
        label=params.get("label", "").strip()[:400],
        text=params.get("text", "").strip()[:100],
    )


def runs_filtered(runs: QuerySet[Run], filters: Filters) -> QuerySet[Run]:
    if filters.state:
        runs = runs.filter(state=filters.state)
    if filters.owner:
        runs = runs.filter(created_by__username=filters.owner)
    if filters.label:
        key, equals, value = filters.label.partition("=")
        runs = runs.filter(labels__contains={key: value}) if equals else runs.filter(labels__has_key=key)
    if filters.text:
        runs = runs.filter(name__icontains=filters.text)
    return runs


def _whole(runs: QuerySet[Run]) -> QuerySet[Any]:
    """Rows for ids that are found first: that search reads an index, a hundredth of what the rows are."""
    found = list(runs.values_list("id", flat=True))
    return runs_for_rows(Run.objects.filter(id__in=found))


def runs_page(runs: QuerySet[Run], params: QueryDict) -> RunPage:
    """Newest first. `before` and `after` are ids: pages stay where they are while runs come and go."""
    before, after = number_read(params.get("before", "")), number_read(params.get("after", ""))
    if after is not None:
        found = list(_whole(runs.filter(id__gt=after).order_by("id")[: PAGE_SIZE + 1]).order_by("id"))
        more_newer, more_older = len(found) > PAGE_SIZE, True
        found = found[:PAGE_SIZE][::-1]
    else:
        older_than = LARGEST if before is None else before
        found = list(_whole(runs.filter(id__lt=older_than).order_by("-id")[: PAGE_SIZE + 1]))
        more_newer, more_older = before is not None, len(found) > PAGE_SIZE
        found = found[:PAGE_SIZE]
    return RunPage(
        rows=[run_row(run) for run in found],
        newer=found[0].id if found and more_newer else None,
        older=found[-1].id if found and more_older else None,
        beyond=not found and (before, after) != (None, None),
    )


def runs_for_rows(runs: QuerySet[Run]) -> QuerySet[Run]:
    """What a row needs. Documents may hold megabytes of files: only their numbers are read."""
    networks = [
        Subquery(
            RunAttempt.objects.filter(**{path: OuterRef("id")}).order_by("-number").values("network")[:1]
        )
        for path in ("run", "run__parent")
    ]
    waiting = Run.objects.waiting().filter(parent=OuterRef("id"), reason__code="waiting")
    lacks = waiting.order_by(F("queue_position").asc(nulls_last=True)).values("explanation")[:1]
    return (
        runs.select_related("cluster", "created_by")
        .defer("document", "submitted")
        .annotate(
            network=Coalesce(*networks),
            lacks=Subquery(lacks),
            gpus=F("document__spec__task_template__requested_resources__gpu_requests__count"),
            groups=F("document__spec__worker_groups"),
        )
        .order_by("-id")
    )


def run_row(run: Any) -> RunRow:
    placed = run.network if run.state != RunState.PENDING else None
    return RunRow(
        run=run,
        reason=reason_with(run, run.lacks) if _waits_apart(run) else run_reason(run),
        gpus=run.gpus or _gpus_of_groups(run.groups or []),
        network=words.verdict_words(placed) if placed else "",
    )


def _waits_apart(run: Run) -> bool:
    """Its workers start on their own, and none does yet."""
    return run.independent and run.state == RunState.PENDING


def _gpus_of_groups(groups: list[dict[str, Any]]) -> int:
    wanted = [group["task_template"]["requested_resources"].get("gpu_requests") or {} for group in groups]
    return sum(each.get("count", 0) for each in wanted)
