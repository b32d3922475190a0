"""The topology map: the same filtered machines as the list, drawn where they stand."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode

import numpy as np
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from console.pages.errors import page
from console.pages.machine_cells import (
    CHOSEN,
    FAULTY,
    FITS,
    FREE,
    FREE_SUSPECT,
    HELD,
    HELD_OTHERS,
    HELD_SUSPECT,
    Tally,
)
from console.pages.machine_filters import NOT_KNOWN, Filters, choices_of
from console.pages.machine_for_run import ForRun, for_run
from console.pages.machine_racks import concatenated, rack_bar, rack_item
from console.pages.machine_svg import Grid, grid_of, marks, patterns, rack_svg
from console.pages.machine_tiles import Fabric, Look, Rack, Standing, standing_of
from console.pages.scope import Scope, cluster_scope
from machines.models import Machine
from machines.states import MachineState
from placement.arrays import Longs
from runs.models import Allocation
from runs.scheduling.snapshot import cluster_snapshot

MOST_NAMES = 60
"""Machines that are shown with their names; more would be unreadable."""

GPU_KINDS = {
    "free": ("Free", frozenset({FREE, FREE_SUSPECT})),
    "held": ("Held", frozenset({HELD, HELD_OTHERS, HELD_SUSPECT})),
    "suspect": ("Suspect", frozenset({HELD_SUSPECT, FREE_SUSPECT})),
    "faulty": ("Faulty", frozenset({FAULTY})),
}
"""Of the legend; pressing one shows only machines with such GPUs."""
MARK_TITLES = {FITS: "Fits it", CHOSEN: "Chosen for it"}
"""Of the legend where the map is shown for a run."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    name: str
    word: str
    count: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class FabricShown:
    fabric: Fabric
    racks: SafeString
    """List items."""


@page
@require_safe
def machine_map(request: HttpRequest, organization: str, cluster: str) -> HttpResponse:
    scope = cluster_scope(request, organization, cluster)
    filters = Filters.of(request.GET)
    show = request.GET.get("show", "")
    by_holder = request.GET.get("by") == "holder"
    asked = for_run(scope, request.GET.get("for", ""))
    look = Look(
        mine=_held_by_mine(scope) if by_holder else None,
        ordered=bool(filters.rack),
        marks=asked.mark if asked else None,
        cells=GPU_KINDS[show][1] if show in GPU_KINDS else frozenset(),
        mark=show if asked and show in MARK_TITLES else "",
    )
    standing = _standing(scope, filters, look)
    context = {
        "scope": scope,
        "section": "machines",
        "view": "map",
        "filters": filters,
        "choices": choices_of(scope.cluster_here),
        "not_known": NOT_KNOWN,
        "kept": [(name, request.GET[name]) for name in ("show", "by", "for") if request.GET.get(name)],
        "show": show,
        "by_holder": by_holder,
        "asked": asked,
        "marks": _mark_legend(standing.tally, show) if asked else [],
        "gpus": _gpu_legend(standing.tally, show),
        "states": _state_legend(standing.tally, filters),
        "machines": standing.tally.machines,
        "narrowed": bool(look.cells or look.mark) or filters != filters.place,
        "matches": standing.tally.hits,
        **_drawn(scope, filters, standing, asked),
    }
    return render(request, "machines/map.html", context)


def _standing(scope: Scope, filters: Filters, look: Look) -> Standing:
    """A filter of the place decides what is drawn; the others, what is dimmed."""
    snapshot = cluster_snapshot(scope.cluster_here).snapshot
    if not filters:
        return standing_of(snapshot, snapshot.topology.ids, snapshot.topology.ids, look)
    machines = Machine.objects.filter(cluster=scope.cluster)
    hits = _ids(filters.apply(machines).order_by().values_list("id", flat=True))
    place = filters.place
    shown = hits if place == filters else _ids(place.apply(machines).order_by().values_list("id", flat=True))
    return standing_of(snapshot, shown, hits, look)


def _ids(values: Iterable[int]) -> Longs:
    return np.fromiter(values, dtype=np.int64)


def _held_by_mine(scope: Scope) -> Longs:
    """GPUs that are held by runs which the reader may see."""
    held = Allocation.objects.filter(
        machine__cluster=scope.cluster,
        released_at=None,
        gpu__isnull=False,
        assignment__attempt__run__workspace__in=scope.workspaces,
    )
    return _ids(gpu for gpu in held.values_list("gpu_id", flat=True) if gpu is not None)


def _drawn(scope: Scope, filters: Filters, standing: Standing, asked: ForRun | None) -> dict[str, Any]:
    tiles = standing.tiles
    bars = standing.tally.machines > len(tiles)
    grid = grid_of(tiles, names=len(tiles) <= MOST_NAMES)
    return {
        "fabrics": [
            FabricShown(fabric, _racks(scope, filters, fabric, grid, asked, bars=bars))
            for fabric in standing.fabrics
        ],
        "patterns": "" if bars else patterns(tiles, grid) + (marks(grid) if asked else SafeString()),
        "bars": bars,
        "names_hidden": not grid.names and not bars,
    }


def _racks(
    scope: Scope, filters: Filters, fabric: Fabric, grid: Grid, asked: ForRun | None, *, bars: bool
) -> SafeString:
    machines = reverse("machines", args=(scope.organization.slug, scope.cluster_slug))

    def address(name: str) -> str:
        return f"{machines}/{name}"

    marked = asked is not None
    opens = None if filters.rack else _opens(fabric, asked)
    unknown = f"{machines}?rack={NOT_KNOWN}" if scope.may_operate else ""
    return concatenated(
        rack_item(
            rack,
            rack_bar(rack) if bars else rack_svg(rack, grid, address, marked=marked),
            opens=opens and opens(rack),
            sets="" if rack.name else unknown,
            marked=marked,
        )
        for rack in fabric.racks
    )


def _opens(fabric: Fabric, asked: ForRun | None) -> Callable[[Rack], str]:
    """The query that shows one of its racks alone."""
    within = {"fabric": fabric.name} if fabric.name and not fabric.roce else {}
    before, after = (urlencode(each) for each in (within, {"for": asked.key} if asked else {}))

    def opens(rack: Rack) -> str:
        parts = (before, f"rack={quote_plus(rack.name or NOT_KNOWN)}", after)
        return "?" + "&".join(part for part in parts if part)

    return opens


def _mark_legend(tally: Tally, show: str) -> list[LegendEntry]:
    return [LegendEntry(name, word, tally.mark(name), name == show) for name, word in MARK_TITLES.items()]


def _gpu_legend(tally: Tally, show: str) -> list[LegendEntry]:
    return [
        LegendEntry(name, word, tally.cells(codes), name == show) for name, (word, codes) in GPU_KINDS.items()
    ]


def _state_legend(tally: Tally, filters: Filters) -> list[LegendEntry]:
    return [
        LegendEntry(state.value, state.label, count, state.value == filters.state)
        for state in reversed(MachineState)
        if (count := tally.state(state.value))
    ]
