"""A cluster as tiles: fabrics → racks → machines → GPUs, from the arrays of a snapshot.

Pure; machine_svg.py draws them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placement import MachineState as Bits
from placement.arrays import UNKNOWN, Bools, Bytes, Longs
from placement.phrases import plural
from placement.snapshot import GPU_FAULTY, GPU_HELD, GPU_PRESENT, GPU_SUSPECT, Snapshot
from placement.topology import ROCE, Topology

HELD, HELD_OTHERS, HELD_SUSPECT, FREE_SUSPECT, FREE, FAULTY, NO_GPU = range(1, 8)
"""What a cell shows, in the order in which a tile's cells are sorted. HELD_OTHERS: where holders are told apart."""

FITS, CHOSEN, UNJUDGED = "fits", "chosen", "unjudged"
"""Of a run: a machine that has what one of its workers needs; one that it was given; one that no pass has looked at
for it."""

STATES = (
    (Bits.QUARANTINED, "quarantined"),
    (Bits.UNREACHABLE, "unreachable"),
    (Bits.CONTESTED, "contested"),
    (Bits.DRAINING, "draining"),
    (Bits.CORDONED, "cordoned"),
    (Bits.READY, "ready"),
)
"""The first bit that is set names the machine's state."""


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
    """A code above for each GPU."""
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
    tiles: tuple[Tile, ...]

    @property
    def title(self) -> str:
        return self.name or "Rack not known"

    @property
    def counts(self) -> Counter[int]:
        return Counter(code for tile in self.tiles for code in tile.cells)

    @property
    def total(self) -> int:
        return sum(len(tile.cells) for tile in self.tiles)

    @property
    def free(self) -> int:
        counts = self.counts
        return counts[FREE] + counts[FREE_SUSPECT]

    @property
    def fitting(self) -> int:
        """Machines that fit the run that the map is shown for, or hold it."""
        return sum(tile.mark in MARK_WORDS for tile in self.tiles)

    @property
    def label(self) -> str:
        where = f"Rack {self.name}" if self.name else "Rack not known"
        marked = Counter(tile.mark for tile in self.tiles)
        told = [f", {marked[kind]} {word}" for kind, word in MARK_WORDS.items() if marked[kind]]
        return f"{where}, {self.free} of {plural(self.total, 'GPU')} free{''.join(told)}"


@dataclass(frozen=True, slots=True)
class Fabric:
    name: str
    """Empty for machines without one."""
    roce: bool
    racks: tuple[Rack, ...]

    @property
    def title(self) -> str:
        if not self.name:
            return "No InfiniBand fabric"
        return f"{self.name} (RoCE)" if self.roce else self.name

    @property
    def tiles(self) -> Iterator[Tile]:
        return (tile for rack in self.racks for tile in rack.tiles)

    @property
    def words(self) -> str:
        """`512 machines · 410 of 4,096 GPUs free · 12 machines wholly free`: whole machines decide about gangs."""
        tiles = list(self.tiles)
        whole = sum(wholly_free(tile) for tile in tiles)
        total, free = sum(rack.total for rack in self.racks), sum(rack.free for rack in self.racks)
        return " · ".join(
            [
                f"{len(tiles):,} machine{'' if len(tiles) == 1 else 's'}",
                f"{free:,} of {total:,} GPUs free",
                f"{whole:,} wholly free",
            ]
        )


def wholly_free(tile: Tile) -> bool:
    """It takes work, and all its GPUs are free."""
    return tile.state == "ready" and bool(tile.cells) and not set(tile.cells) - {FREE, FREE_SUSPECT}


def fabrics_of(
    snapshot: Snapshot,
    shown: Longs,
    hits: Longs,
    *,
    mine: Longs | None = None,
    ordered: bool = False,
    marks: Callable[[str], Mark] | None = None,
) -> list[Fabric]:
    """The machines with the ids in `shown`; those in `hits` pass the filters.

    `mine`: ids of the GPUs that the reader's own runs hold, where holders are told apart. `ordered`: cells in the true
    order of the GPUs, else sorted, so that few patterns occur. `marks`: what each machine is to the run that the map
    is shown for.
    """
    drawing = _Drawing(snapshot, mine, ordered, marks)
    rows = np.flatnonzero(np.isin(snapshot.topology.ids, shown)).tolist()
    hit = np.isin(snapshot.topology.ids, hits).tolist()
    racks: dict[tuple[int, str], list[Tile]] = defaultdict(list)
    for row in rows:
        racks[drawing.home[row], drawing.rack(row)].append(drawing.tile(row, hit=hit[row]))
    fabrics: dict[int, list[Rack]] = defaultdict(list)
    for (fabric, rack), tiles in sorted(racks.items(), key=lambda item: (not item[0][1], item[0][1])):
        fabrics[fabric].append(Rack(rack, tuple(tiles)))
    names, link = snapshot.topology.fabrics.names, snapshot.topology.fabrics.link
    known = [
        Fabric(names[row], int(link[row]) == ROCE, tuple(fabrics[row])) for row in sorted(fabrics) if row >= 0
    ]
    nowhere = [Fabric("", False, tuple(fabrics[UNKNOWN]))] if UNKNOWN in fabrics else []
    return known + nowhere


class _Drawing:
    """Columns of a snapshot as tiles need them."""

    def __init__(
        self, snapshot: Snapshot, mine: Longs | None, ordered: bool, marks: Callable[[str], Mark] | None
    ) -> None:
        self.marks = marks
        self.topology: Topology = snapshot.topology
        self.cells = _cells(snapshot, mine)
        if not ordered:
            self.cells = np.sort(self.cells, axis=1)
        self.state: list[int] = snapshot.state.tolist()
        self.home: list[int] = self.topology.home_fabric.tolist()
        self.racks: list[int] = self.topology.rack.tolist()
        self.domains: list[int] = self.topology.nvlink_domain.tolist()

    def rack(self, row: int) -> str:
        return self.topology.racks[self.racks[row]] if self.racks[row] != UNKNOWN else ""

    def tile(self, row: int, *, hit: bool) -> Tile:
        topology = self.topology
        state = next(name for bit, name in STATES if self.state[row] & bit)
        domain = self.domains[row]
        nvlink = topology.nvlink_domains[domain] if domain != UNKNOWN else ""
        cells = self.cells[row].tobytes().rstrip(bytes([NO_GPU])).replace(bytes([NO_GPU]), b"")
        parts = [topology.names[row], state, _cells_words(cells)]
        parts += [f"NVLink domain {nvlink}"] if nvlink else []
        parts += [f"also on {name}" for name in self._elsewhere.get(row, ())]
        mark = self.marks(topology.names[row]) if self.marks else None
        parts += [f"{MARK_SPOKEN[mark.kind]}: {mark.text}"] if mark else []
        return Tile(
            machine=int(topology.ids[row]),
            name=topology.names[row],
            state=state,
            cells=cells,
            label=", ".join(parts),
            domain=nvlink,
            hit=hit,
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


def _cells(snapshot: Snapshot, mine: Longs | None) -> Bytes:
    """(machines, slots): a code for each GPU."""
    state = snapshot.gpu_state
    held, suspect = (state & GPU_HELD) != 0, (state & GPU_SUSPECT) != 0
    others: Bools = np.zeros_like(held) if mine is None else held & ~np.isin(snapshot.topology.gpu_id, mine)
    cells = np.select(
        [
            (state & GPU_PRESENT) == 0,
            (state & GPU_FAULTY) != 0,
            held & suspect,
            others,
            held,
            suspect,
        ],
        [NO_GPU, FAULTY, HELD_SUSPECT, HELD_OTHERS, HELD, FREE_SUSPECT],
        FREE,
    )
    return cells.astype(np.uint8)


def _cells_words(cells: bytes) -> str:
    """`3 of 8 GPUs free, 1 suspect`."""
    if not cells:
        return "no GPUs"
    counts = Counter(cells)
    parts = [f"{counts[FREE] + counts[FREE_SUSPECT]} of {plural(len(cells), 'GPU')} free"]
    if suspect := counts[HELD_SUSPECT] + counts[FREE_SUSPECT]:
        parts.append(f"{suspect} suspect")
    if counts[FAULTY]:
        parts.append(f"{counts[FAULTY]} faulty")
    return ", ".join(parts)
