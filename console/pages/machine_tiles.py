"""A cluster as tiles: fabrics → racks → machines → GPUs, from the arrays of a snapshot.

Pure; machine_svg.py draws them. All is counted on arrays: objects are made of racks, and of machines only where these
are drawn.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from console.pages.machine_cells import (
    CHOSEN,
    FITS,
    NO_GPU,
    STATES,
    UNJUDGED,
    Tally,
    cells_of,
    cells_words,
    counted,
    states_of,
)
from placement.arrays import UNKNOWN, Bools, Bytes, Ints, Longs
from placement.phrases import plural
from placement.snapshot import Snapshot
from placement.topology import ROCE, Topology

MOST_TILES = 2000
"""Of a map with more machines a rack is one bar, which opens."""

MARK_WORDS = {FITS: "fit the run", CHOSEN: "chosen for it"}
MARK_SPOKEN = {
    FITS: "fits the run",
    CHOSEN: "chosen for the run",
    UNJUDGED: "not judged for the run yet",
    "": "does not fit the run",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """What a machine is to the run that the map is shown for."""

    kind: str
    """FITS, CHOSEN, UNJUDGED, or empty: it does not fit."""
    text: str
    """Why."""


@dataclass(frozen=True, slots=True)
class Tile:
    machine: int
    """Its id."""
    name: str
    state: str
    cells: bytes
    """A code of machine_cells for each GPU."""
    label: str
    """Its name for a screen reader: `gpu-0113, ready, 3 of 8 GPUs free, 1 suspect`."""
    domain: str
    """Its NVLink domain; empty when there is none."""
    hit: bool
    """It passes the filters."""
    mark: str = ""
    """Of the run that the map is shown for: the kind of a Mark."""


@dataclass(frozen=True, slots=True)
class Rack:
    name: str
    """Empty for machines whose rack is not known."""
    tally: Tally
    tiles: tuple[Tile, ...]
    """Empty where the map has too many to draw."""

    @property
    def title(self) -> str:
        return self.name or "Rack not known"

    @property
    def fitting(self) -> int:
        """Machines that fit the run that the map is shown for, or hold it."""
        return sum(map(self.tally.mark, MARK_WORDS))

    @property
    def label(self) -> str:
        where = f"Rack {self.name}" if self.name else "Rack not known"
        told = [f", {count} {word}" for kind, word in MARK_WORDS.items() if (count := self.tally.mark(kind))]
        return f"{where}, {self.tally.free} of {plural(self.tally.gpus, 'GPU')} free{''.join(told)}"


@dataclass(frozen=True, slots=True)
class Fabric:
    name: str
    """Empty for machines without one."""
    roce: bool
    tally: Tally
    racks: tuple[Rack, ...]

    @property
    def title(self) -> str:
        if not self.name:
            return "No InfiniBand fabric"
        return f"{self.name} (RoCE)" if self.roce else self.name

    @property
    def words(self) -> str:
        """`512 machines · 410 of 4,096 GPUs free · 12 wholly free`: whole machines decide about gangs."""
        return " · ".join(
            [
                f"{self.tally.machines:,} machine{'' if self.tally.machines == 1 else 's'}",
                f"{self.tally.free:,} of {self.tally.gpus:,} GPUs free",
                f"{self.tally.whole:,} wholly free",
            ]
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """Machines where they stand."""

    fabrics: tuple[Fabric, ...]
    tally: Tally

    @property
    def tiles(self) -> tuple[Tile, ...]:
        return tuple(tile for fabric in self.fabrics for rack in fabric.racks for tile in rack.tiles)


@dataclass(frozen=True, slots=True)
class Look:
    """What of the machines is looked at."""

    mine: Longs | None = None
    """Ids of the GPUs that the reader's own runs hold, where holders are told apart."""
    ordered: bool = False
    """Cells in the true order of the GPUs, else sorted, so that few patterns occur."""
    marks: Callable[[str], Mark] | None = None
    """What a machine is to the run that the map is shown for, by name."""
    cells: frozenset[int] = frozenset()
    """Where there are any, only machines with one of these cells pass."""
    mark: str = ""
    """Where there is one, only machines that are this to the run pass."""


def standing_of(snapshot: Snapshot, shown: Longs, hits: Longs, look: Look) -> Standing:
    """The machines with the ids in `shown`; those in `hits` pass the filters."""
    topology = snapshot.topology
    rows = np.flatnonzero(np.isin(topology.ids, shown))
    home, rack = _last(topology.home_fabric[rows]), _last(topology.rack[rows])
    order = np.lexsort((rows, rack, home))
    rows, home, rack = rows[order], home[order], rack[order]
    seen = _Seen(snapshot, rows, np.isin(topology.ids[rows], hits), look)
    if not len(rows):
        return Standing((), Tally(tuple([0] * seen.columns.shape[1])))
    starts = np.flatnonzero(np.r_[True, (np.diff(home) != 0) | (np.diff(rack) != 0)])
    ends = np.r_[starts[1:], len(rows)]
    tallies = np.add.reduceat(seen.columns, starts, axis=0)
    racks = [
        Rack(_name(topology.racks, place), Tally(tuple(counts)), seen.tiles(start, end))
        for place, counts, start, end in zip(
            rack[starts].tolist(), tallies.tolist(), starts.tolist(), ends.tolist(), strict=True
        )
    ]
    return Standing(tuple(_fabrics(topology, home[starts], tallies, racks)), _sum(tallies))


_NOWHERE = np.iinfo(np.int64).max


def _last(places: Ints) -> Longs:
    """What is not known stands last."""
    return np.where(places == UNKNOWN, _NOWHERE, places.astype(np.int64))


def _name(names: Sequence[str], place: int) -> str:
    return "" if place == _NOWHERE else names[place]


def _sum(tallies: Longs) -> Tally:
    return Tally(tuple(tallies.sum(axis=0).tolist()))


def _fabrics(topology: Topology, home: Longs, tallies: Longs, racks: Sequence[Rack]) -> list[Fabric]:
    """`home` and `tallies`: of each rack."""
    found = []
    for place in np.unique(home).tolist():
        of_it = np.flatnonzero(home == place)
        roce = place != _NOWHERE and int(topology.fabrics.link[place]) == ROCE
        name = _name(topology.fabrics.names, place)
        found.append(Fabric(name, roce, _sum(tallies[of_it]), tuple(racks[row] for row in of_it.tolist())))
    return found


class _Seen:
    """The machines of the map, a row each, in the order in which they stand."""

    def __init__(self, snapshot: Snapshot, rows: Longs, hits: Bools, look: Look) -> None:
        self.topology = snapshot.topology
        self.rows: list[int] = rows.tolist()
        cells = cells_of(snapshot, look.mine)[rows]
        self.cells: Bytes = cells if look.ordered else np.sort(cells, axis=1)
        self.states = states_of(snapshot)[rows]
        self.marks = [look.marks(self.topology.names[row]) for row in self.rows] if look.marks else None
        kinds = [mark.kind for mark in self.marks] if self.marks else None
        if look.cells:
            hits = hits & np.isin(cells, sorted(look.cells)).any(axis=1)
        if look.mark and kinds:
            hits = hits & np.array([kind == look.mark for kind in kinds])
        self.hits: list[bool] = hits.tolist()
        self.columns = counted(cells, self.states, kinds, hits)

    def tiles(self, start: int, end: int) -> tuple[Tile, ...]:
        if len(self.rows) > MOST_TILES:
            return ()
        return tuple(map(self._tile, range(start, end)))

    def _tile(self, at: int) -> Tile:
        topology, row = self.topology, self.rows[at]
        state = STATES[self.states[at]][1]
        domain = int(topology.nvlink_domain[row])
        nvlink = topology.nvlink_domains[domain] if domain != UNKNOWN else ""
        cells = self.cells[at].tobytes().replace(bytes([NO_GPU]), b"")
        parts = [topology.names[row], state, cells_words(cells)]
        parts += [f"NVLink domain {nvlink}"] if nvlink else []
        parts += [f"also on {name}" for name in self._elsewhere.get(row, ())]
        mark = self.marks[at] if self.marks else None
        parts += [f"{MARK_SPOKEN[mark.kind]}: {mark.text}"] if mark else []
        return Tile(
            machine=int(topology.ids[row]),
            name=topology.names[row],
            state=state,
            cells=cells,
            label=", ".join(parts),
            domain=nvlink,
            hit=self.hits[at],
            mark=mark.kind if mark else "",
        )

    @cached_property
    def _elsewhere(self) -> Mapping[int, list[str]]:
        """Other compute fabrics of machines that are on several."""
        members, fabrics = self.topology.members, self.topology.fabrics
        found: dict[int, list[str]] = defaultdict(list)
        away = (self.topology.home_fabric[members.machine] != members.fabric) & fabrics.named[members.fabric]
        for at in np.flatnonzero(away).tolist():
            found[int(members.machine[at])].append(fabrics.names[int(members.fabric[at])])
        return found
