"""GPUs of a snapshot as cells of the map, a code each, and machines counted by what their cells show. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from placement import MachineState as Bits
from placement.arrays import Bools, Bytes, Longs
from placement.phrases import plural
from placement.snapshot import GPU_FAULTY, GPU_HELD, GPU_PRESENT, GPU_SUSPECT, Snapshot

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

_CODES = NO_GPU + 1
_MARKS = ("", FITS, CHOSEN, UNJUDGED)
_STATE_COLUMN = {name: _CODES + number for number, (_, name) in enumerate(STATES)}
_MARK_COLUMN = {kind: _CODES + len(STATES) + number for number, kind in enumerate(_MARKS)}
_WHOLE = _CODES + len(STATES) + len(_MARKS)
_HIT = _WHOLE + 1


@dataclass(frozen=True, slots=True)
class Tally:
    """Some machines, counted."""

    columns: tuple[int, ...]
    """As `counted` makes them of each machine, summed."""

    def cells(self, codes: Iterable[int]) -> int:
        return sum(map(self.columns.__getitem__, codes))

    def state(self, name: str) -> int:
        return self.columns[_STATE_COLUMN[name]]

    def mark(self, kind: str) -> int:
        return self.columns[_MARK_COLUMN[kind]]

    @property
    def machines(self) -> int:
        return sum(map(self.state, _STATE_COLUMN))

    @property
    def gpus(self) -> int:
        return sum(self.columns[HELD:NO_GPU])

    @property
    def free(self) -> int:
        return self.cells((FREE, FREE_SUSPECT))

    @property
    def held(self) -> int:
        return self.cells((HELD, HELD_OTHERS, HELD_SUSPECT))

    @property
    def whole(self) -> int:
        """Machines that take work and whose GPUs are all free."""
        return self.columns[_WHOLE]

    @property
    def hits(self) -> int:
        """Machines that pass the filters."""
        return self.columns[_HIT]


def counted(cells: Bytes, states: Longs, marks: Iterable[str] | None, hits: Bools) -> Longs:
    """(machines, columns of a Tally). `states`: as `states_of` numbers them; `marks`: the kind of each machine."""
    machines = len(cells)
    columns = np.zeros((machines, _HIT + 1), dtype=np.int64)
    for code in range(HELD, _CODES):
        columns[:, code] = (cells == code).sum(axis=1)
    rows = np.arange(machines)
    columns[rows, _CODES + states] = 1
    kinds = np.fromiter((_MARK_COLUMN[kind] for kind in marks or ()), dtype=np.int64)
    columns[rows[: len(kinds)], kinds] = 1
    free = columns[:, FREE] + columns[:, FREE_SUSPECT]
    gpus = columns[:, HELD:NO_GPU].sum(axis=1)
    columns[:, _WHOLE] = (columns[:, _STATE_COLUMN["ready"]] == 1) & (gpus > 0) & (free == gpus)
    columns[:, _HIT] = hits
    return columns


def states_of(snapshot: Snapshot) -> Longs:
    """Of each machine the row of its state in STATES."""
    bits = np.array([int(bit) for bit, _ in STATES])
    found: Longs = ((snapshot.state[:, None] & bits) != 0).argmax(axis=1)
    return found


def cells_of(snapshot: Snapshot, mine: Longs | None) -> Bytes:
    """(machines, slots): a code for each GPU. `mine`: ids of GPUs that the reader's own runs hold; None: no matter."""
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


def cells_words(cells: bytes) -> str:
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
