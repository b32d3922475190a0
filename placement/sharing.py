"""Gangs that run, and whether their machines still share what their requests ask: told before a label is changed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from placement.arrays import UNKNOWN, Longs
from placement.ask import Ask
from placement.domains import counts_for
from placement.request import Level, Request
from placement.room import must_share
from placement.shapes import Shape
from placement.snapshot import Snapshot
from placement.topology import Topology

LEVELS: tuple[Level, ...] = ("nvlink_domain", "rack", "fabric")
"""The narrowest first."""


@dataclass(frozen=True, slots=True)
class Gang:
    """A group of workers that run together."""

    key: int
    request: Request
    index: int
    """The group's place in the request."""
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """A gang whose machines share the level now and would not share it then."""

    gang: Gang
    level: Level
    before: tuple[str, ...]
    """Names of the places in which its machines are now, sorted; one that is not known has none."""
    after: tuple[str, ...]
    unknown: tuple[str, ...]
    """Its machines whose place would not be known."""


def splits(before: Snapshot, after: Snapshot, gangs: Iterable[Gang]) -> Iterator[Split]:
    """The gangs that a change of the cluster tears apart. A machine that is gone then is in no place."""
    for gang in gangs:
        if _together(before, gang) and not _together(after, gang):
            yield _split(before.topology, after.topology, gang, _levels(before, gang))


def _levels(snapshot: Snapshot, gang: Gang) -> frozenset[Level]:
    shape = Shape(len(gang.machines), 0)
    return must_share(Ask(snapshot, gang.request, gang.index), shape)


def _together(snapshot: Snapshot, gang: Gang) -> bool:
    """Whether some domain that may hold the gang holds all its machines."""
    levels = _levels(snapshot, gang)
    if not levels:
        return True
    rows = _rows(snapshot.topology, gang)
    if rows.size < len(gang.machines):
        return False
    grouping = snapshot.topology.grouping(levels)
    ask = Ask(snapshot, gang.request, gang.index)
    may_hold = counts_for(ask, grouping, ask.kinds)
    inside = np.isin(grouping.machine, rows) & may_hold[grouping.domain]
    return bool((np.bincount(grouping.domain[inside]) == rows.size).any())


def _rows(topology: Topology, gang: Gang) -> Longs:
    return topology.rows_named(gang.machines)


def _split(before: Topology, after: Topology, gang: Gang, levels: frozenset[Level]) -> Split:
    """Told at the narrowest level at which the places change."""
    asked = [level for level in LEVELS if level in levels]
    told = next(
        (level for level in asked if _places(before, gang, level) != _places(after, gang, level)), asked[0]
    )
    names, unknown = _places(after, gang, told)
    return Split(gang, told, _places(before, gang, told)[0], names, unknown)


def _places(topology: Topology, gang: Gang, level: Level) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the places of the gang's machines, and the machines that are in none."""
    table, column = {
        "nvlink_domain": (topology.nvlink_domains, topology.nvlink_domain),
        "rack": (topology.racks, topology.rack),
        "fabric": (topology.fabrics.names, topology.home_fabric),
    }[level]
    rows = sorted(_rows(topology, gang).tolist())
    places = {topology.names[row]: int(column[row]) for row in rows}
    names = sorted({table[place] for place in places.values() if place != UNKNOWN})
    known = {name for name, place in places.items() if place != UNKNOWN}
    return tuple(names), tuple(name for name in sorted(gang.machines) if name not in known)
