"""What runs hold: plain values from the caller, and where that is in the arrays of a snapshot."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, repeat
from operator import attrgetter

import numpy as np

from placement.arrays import UNKNOWN, Ints, Longs
from placement.topology import Topology


@dataclass(frozen=True, slots=True)
class Hold:
    """What one worker holds on one machine. `gpus` are indices on the machine."""

    machine: str
    gpus: tuple[int, ...]
    cpu_millicores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Holding:
    """What a run holds: all of it ends together."""

    key: int
    """The caller's; handed back in answers."""
    holds: tuple[Hold, ...]
    ends_at: float | None
    """Epoch seconds, at the latest; None: it has no time limit."""


_MACHINE, _GPUS = attrgetter("machine"), attrgetter("gpus")
_CPU, _MEMORY = attrgetter("cpu_millicores"), attrgetter("memory_bytes")


@dataclass(frozen=True, slots=True)
class Located:
    """Holds in the index space of a topology; machines and GPUs that the cluster lacks are left out."""

    hold: Longs
    """Per known machine's hold: its place among the holds given; the next three are in the same order."""
    row: Longs
    cpu: Longs
    memory: Longs
    gpu_hold: Longs
    """Per known GPU: the place of its hold among the holds given; the next two are in the same order."""
    gpu_row: Longs
    gpu_slot: Ints


def locate(topology: Topology, holds: Iterable[Hold]) -> Located:
    """Where these holds are."""
    every = tuple(holds)
    count, gpus = len(every), list(map(_GPUS, every))
    rows = np.fromiter(map(topology.row_of.get, map(_MACHINE, every), repeat(UNKNOWN)), np.int64, count)
    cpu, memory = (
        np.fromiter(map(_CPU, every), np.int64, count),
        np.fromiter(map(_MEMORY, every), np.int64, count),
    )
    owner = np.repeat(np.arange(count), np.fromiter(map(len, gpus), np.int64, count))
    row, slot_of = rows[owner], topology.slot_of
    index = np.fromiter(chain.from_iterable(gpus), np.int64, owner.size)
    slot = slot_of[row, np.maximum(np.minimum(index, slot_of.shape[1] - 1), UNKNOWN)]
    if min(rows.min(initial=0), slot.min(initial=0)) != UNKNOWN:  # as most often
        return Located(np.arange(count), rows, cpu, memory, owner, row, slot)
    known, there = np.flatnonzero(rows != UNKNOWN), slot != UNKNOWN
    return Located(known, rows[known], cpu[known], memory[known], owner[there], row[there], slot[there])
