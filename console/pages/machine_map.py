"""The topology map: the same filtered machines as the list, drawn where they stand."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import numpy as np
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from console.pages.errors import page
from console.pages.machine_filters import NOT_KNOWN, Filters, choices_of
from console.pages.machine_for_run import ForRun, for_run
from console.pages.machine_svg import Grid, grid_of, marks, patterns, rack_bar, rack_svg
from console.pages.machine_tiles import (
    CHOSEN,
    FAULTY,
    FITS,
    FREE,
    FREE_SUSPECT,
    HELD,
    HELD_OTHERS,
    HELD_SUSPECT,
    Fabric,
    Rack,
    Tile,
    fabrics_of,
)
from console.pages.scope import Scope, cluster_scope
from machines.models import Machine
from machines.states import MachineState
from placement.arrays import Longs
from runs.models import Allocation
from runs.scheduling.snapshot import cluster_snapshot

MOST_TILES = 2000
"""Of a larger cluster a rack is one bar, which opens."""
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
class RackShown:
    rack: Rack
    drawing: SafeString
    opens: str
    """The query that shows this rack alone; empty where it is alone already."""


@dataclass(frozen=True, slots=True)
class FabricShown:
    fabric: Fabric
    racks: list[RackShown]


@page
@require_safe
def machine_map(request: HttpRequest, organization: str, cluster: str) -> HttpResponse:
    scope = cluster_scope(request, organization, cluster)
    filters = Filters.of(request.GET)
    show = request.GET.get("show", "")
    by_holder = request.GET.get("by") == "holder"
    asked = for_run(scope, request.GET.get("for", ""))
    fabrics = _fabrics(scope, filters, asked, by_holder=by_holder)
    tiles = [tile for fabric in fabrics for tile in fabric.tiles]
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
        "marks": _mark_legend(tiles, show) if asked else [],
        "gpus": _gpu_legend(tiles, show),
        "states": _state_legend(tiles, filters),
        **_drawn(scope, filters, fabrics, tiles, show, asked),
    }
    return render(request, "machines/map.html", context)


def _fabrics(scope: Scope, filters: Filters, asked: ForRun | None, *, by_holder: bool) -> list[Fabric]:
    """A filter of the place decides what is drawn; the others, what is dimmed."""
    machines = Machine.objects.filter(cluster=scope.cluster)
    hits = _ids(filters.apply(machines).values_list("id", flat=True))
    place = filters.place
    shown = hits if place == filters else _ids(place.apply(machines).values_list("id", flat=True))
    snapshot = cluster_snapshot(scope.cluster_here).snapshot
    mine = _held_by_mine(scope) if by_holder else None
    of_run = asked.mark if asked else None
    return fabrics_of(snapshot, shown, hits, mine=mine, ordered=bool(filters.rack), marks=of_run)


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


def _drawn(
    scope: Scope,
    filters: Filters,
    fabrics: list[Fabric],
    tiles: list[Tile],
    show: str,
    asked: ForRun | None,
) -> dict[str, Any]:
    wanted = _wanted(show, asked)
    fabrics = _dimmed(fabrics, wanted) if wanted else fabrics
    grid = grid_of(tiles, names=len(tiles) <= MOST_NAMES)
    bars = len(tiles) > MOST_TILES
    matches = sum(tile.hit for fabric in fabrics for tile in fabric.tiles)
    return {
        "fabrics": [
            FabricShown(fabric, _racks(scope, filters, fabric, grid, asked, bars=bars)) for fabric in fabrics
        ],
        "patterns": "" if bars else patterns(tiles, grid) + (marks(grid) if asked else SafeString()),
        "bars": bars,
        "names_hidden": not grid.names and not bars,
        "machines": len(tiles),
        "narrowed": bool(wanted) or filters != filters.place,
        "matches": matches,
    }


def _wanted(show: str, asked: ForRun | None) -> Callable[[Tile], bool] | None:
    """What the pressed entry of the legend leaves; None when none is pressed."""
    if show in GPU_KINDS:
        codes = GPU_KINDS[show][1]
        return lambda tile: not codes.isdisjoint(tile.cells)
    if asked and show in MARK_TITLES:
        return lambda tile: tile.mark == show
    return None


def _dimmed(fabrics: list[Fabric], wanted: Callable[[Tile], bool]) -> list[Fabric]:
    """Only what is wanted passes."""
    return [
        Fabric(
            fabric.name,
            fabric.roce,
            tuple(
                Rack(rack.name, tuple(_passing(tile, wanted) for tile in rack.tiles)) for rack in fabric.racks
            ),
        )
        for fabric in fabrics
    ]


def _passing(tile: Tile, wanted: Callable[[Tile], bool]) -> Tile:
    return replace(tile, hit=tile.hit and wanted(tile))


def _racks(
    scope: Scope, filters: Filters, fabric: Fabric, grid: Grid, asked: ForRun | None, *, bars: bool
) -> list[RackShown]:
    machines = reverse("machines", args=(scope.organization.slug, scope.cluster_slug))

    def address(name: str) -> str:
        return f"{machines}/{name}"

    return [
        RackShown(
            rack,
            rack_bar(rack) if bars else rack_svg(rack, grid, address, marked=asked is not None),
            "" if filters.rack else _opens(fabric, rack, asked),
        )
        for rack in fabric.racks
    ]


def _opens(fabric: Fabric, rack: Rack, asked: ForRun | None) -> str:
    within = "" if fabric.roce else fabric.name
    query = Filters(fabric=within, rack=rack.name or NOT_KNOWN).query
    return f"{query}&{urlencode({'for': asked.key})}" if asked else query


def _mark_legend(tiles: list[Tile], show: str) -> list[LegendEntry]:
    counts = Counter(tile.mark for tile in tiles)
    return [LegendEntry(name, word, counts[name], name == show) for name, word in MARK_TITLES.items()]


def _gpu_legend(tiles: list[Tile], show: str) -> list[LegendEntry]:
    counts = Counter(code for tile in tiles for code in tile.cells)
    return [
        LegendEntry(name, word, sum(counts[code] for code in codes), name == show)
        for name, (word, codes) in GPU_KINDS.items()
    ]


def _state_legend(tiles: list[Tile], filters: Filters) -> list[LegendEntry]:
    counts = Counter(tile.state for tile in tiles)
    return [
        LegendEntry(state.value, state.label, counts[state.value], state.value == filters.state)
        for state in reversed(MachineState)
        if counts[state.value]
    ]
