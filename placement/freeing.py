"""The cluster after any of several holdings have ended, quickly: what each would free is worked out once."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from placement.arrays import Bools, Longs, read_only
from placement.holdings import Holding, locate
from placement.snapshot import FREE_HEALTHY, FREE_SUSPECT, GPU_HELD, Snapshot, count_slots

_Scalar = TypeVar("_Scalar", bound=np.generic)


class Freeing:
    """Holdings are told by their place in the sequence given.

    Where two holdings hold one GPU (one is about to take it over), it is free only when the later one in the sequence
    has ended.
    """

    def __init__(self, snapshot: Snapshot, holdings: Sequence[Holding]) -> None:
        holds = [holding.holds for holding in holdings]
        holder = np.repeat(np.arange(len(holds)), np.fromiter(map(len, holds), np.int64, len(holds)))
        held = locate(snapshot.topology, chain.from_iterable(holds))
        self._snapshot = snapshot
        self._row, self._holder = held.row, holder[held.hold]
        self._cpu, self._memory = held.cpu.astype(np.float64), held.memory.astype(np.float64)
        self._none = len(holdings)
        self._gpu_holder = np.full(snapshot.gpu_state.shape, self._none, dtype=np.int32)
        self._gpu_holder[held.gpu_row, held.gpu_slot] = holder[held.gpu_hold]

    def after(self, ended: Bools) -> Snapshot:
        """The cluster once these have ended; `ended`: (holdings,)."""
        keeps = np.full(ended.size + 1, 0xFF, dtype=np.uint8)
        keeps[:-1][ended] ^= GPU_HELD
        gone = ended[self._holder]
        rows = np.unique(self._row[gone])
        freed = self._snapshot.gpu_state[rows] & keeps[self._gpu_holder[rows]]
        return replace(
            self._snapshot,
            gpu_state=_patched(self._snapshot.gpu_state, rows, freed),
            free_healthy=_patched(self._snapshot.free_healthy, rows, count_slots(freed == FREE_HEALTHY)),
            free_suspect=_patched(self._snapshot.free_suspect, rows, count_slots(freed == FREE_SUSPECT)),
            cpu_free=self._plus(self._snapshot.cpu_free, gone, self._cpu),
            memory_free=self._plus(self._snapshot.memory_free, gone, self._memory),
        )

    def _plus(
        self, free: Longs, gone: Bools, amounts: "np.ndarray[tuple[int], np.dtype[np.float64]]"
    ) -> Longs:
        # Sums of floats are exact here: amounts are whole and far below 2**53.
        added = np.bincount(self._row[gone], weights=amounts[gone], minlength=free.size)
        return read_only(free + added.astype(np.int64))

    def holders_on(self, machines: Longs) -> Longs:
        """Holdings that hold anything on these machines, ascending."""
        there = np.zeros(self._snapshot.topology.size, dtype=np.bool_)
        there[machines] = True
        return np.unique(self._holder[there[self._row]])

    def gpus_on(self, machines: Bools) -> Longs:
        """(holdings,): GPUs that each holds on these machines."""
        holders = self._gpu_holder[machines]
        return np.bincount(holders.reshape(-1), minlength=self._none + 1)[: self._none]


def _patched(
    array: "np.ndarray[Any, np.dtype[_Scalar]]", rows: Longs, there: "np.ndarray[Any, np.dtype[_Scalar]]"
) -> "np.ndarray[Any, np.dtype[_Scalar]]":
    """A copy with other values in these rows: what most choices free is on few machines."""
    patched = array.copy()
    patched[rows] = there
    return read_only(patched)
