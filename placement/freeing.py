"""The cluster after any of several holdings have ended, quickly: what each would free is worked out once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from placement.arrays import UNKNOWN, Bools, Ints, Longs, patched, read_only
from placement.holdings import Holding, locate
from placement.snapshot import (
    FREE_HEALTHY,
    FREE_SUSPECT,
    GPU_FAULTY,
    GPU_HELD,
    GPU_PRESENT,
    GPU_SUSPECT,
    Snapshot,
    count_slots,
)
from placement.topology import Topology


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where holdings are in the arrays of one topology: looked up once, however often it is asked what they free.

    Holdings are told by their place in the sequence given. Where two hold one GPU (one is about to take it over), it
    is free only when the later one in the sequence has ended.
    """

    topology: Topology
    holdings: tuple[Holding, ...]
    row: Longs
    """Per hold on a known machine; the next four are in the same order."""
    holder: Longs
    gpus: Longs
    """How many."""
    cpu: npt.NDArray[np.float64]
    memory: npt.NDArray[np.float64]
    gpu_holder: Ints
    """(machines, slots): who holds the GPU; UNKNOWN: none of them."""

    @classmethod
    def of(cls, topology: Topology, holdings: Sequence[Holding]) -> "Whereabouts":
        nobody = np.full(topology.gpu_index.shape, UNKNOWN, dtype=np.int32)
        nothing, no_amounts = np.zeros(0, dtype=np.int64), np.zeros(0)
        return cls(topology, (), nothing, nothing, nothing, no_amounts, no_amounts, nobody).plus(holdings)

    def plus(self, more: Sequence[Holding]) -> "Whereabouts":
        """With these behind those that are known."""
        if not more:
            return self
        holds = [holding.holds for holding in more]
        numbers = np.arange(len(self.holdings), len(self.holdings) + len(holds))
        how_many = np.fromiter(map(len, holds), np.int64, len(holds))
        holder = np.repeat(numbers, how_many)
        held = locate(self.topology, chain.from_iterable(holds))
        gpus = np.bincount(held.gpu_hold, minlength=holder.size)[held.hold]
        gpu_holder = self.gpu_holder.copy()
        gpu_holder[held.gpu_row, held.gpu_slot] = holder[held.gpu_hold]
        return Whereabouts(
            self.topology,
            (*self.holdings, *more),
            np.concatenate((self.row, held.row)),
            np.concatenate((self.holder, holder[held.hold])),
            np.concatenate((self.gpus, gpus)),
            np.concatenate((self.cpu, held.cpu)),
            np.concatenate((self.memory, held.memory)),
            gpu_holder,
        )


class Freeing:
    """What the ends of holdings would free of one snapshot."""

    def __init__(self, snapshot: Snapshot, where: Whereabouts) -> None:
        self._snapshot, self._where = snapshot, where

    def after(self, ended: Bools) -> Snapshot:
        """The cluster once these have ended; `ended`: (holdings,)."""
        # The extra last entry is read by the index of GPUs that none of them holds.
        keeps = np.full(ended.size + 1, 0xFF, dtype=np.uint8)
        keeps[:-1][ended] ^= GPU_HELD
        gone = ended[self._where.holder]
        rows = np.flatnonzero(self._marked(self._where.row[gone]))
        freed = self._snapshot.gpu_state[rows] & keeps[self._where.gpu_holder[rows]]
        return replace(
            self._snapshot,
            gpu_state=patched(self._snapshot.gpu_state, rows, freed),
            free_healthy=patched(self._snapshot.free_healthy, rows, count_slots(freed == FREE_HEALTHY)),
            free_suspect=patched(self._snapshot.free_suspect, rows, count_slots(freed == FREE_SUSPECT)),
            cpu_free=self._plus(self._snapshot.cpu_free, gone, self._where.cpu),
            memory_free=self._plus(self._snapshot.memory_free, gone, self._where.memory),
        )

    def gpus_free_from(
        self, machines: Longs, ends: npt.NDArray[np.float64], *, healthy_only: bool
    ) -> npt.NDArray[np.float64]:
        """(of these machines, slots): the moment from which each GPU is free; inf: never, or it must not be used.

        `ends`: (holdings,), when each of them ends.
        """
        state = self._snapshot.gpu_state[machines]
        # The extra last entry is read by the index of GPUs that none of them holds.
        until = np.append(ends, np.inf)[self._where.gpu_holder[machines]]
        bad = np.uint8(GPU_FAULTY | GPU_SUSPECT if healthy_only else GPU_FAULTY)
        never = (state & (GPU_PRESENT | bad)) != GPU_PRESENT
        return np.where(never, np.inf, np.where(state & GPU_HELD, until, -np.inf))

    def _marked(self, rows: Longs) -> Bools:
        """(machines,): True in these rows."""
        marked = np.zeros(self._snapshot.topology.size, dtype=np.bool_)
        marked[rows] = True
        return marked

    def _plus(self, free: Longs, gone: Bools, amounts: npt.NDArray[np.float64]) -> Longs:
        # Sums of floats are exact here: amounts are whole and far below 2**53.
        added = np.bincount(self._where.row[gone], weights=amounts[gone], minlength=free.size)
        return read_only(free + added.astype(np.int64))

    def holders_on(self, machines: Longs) -> Longs:
        """Holdings that hold anything on these machines, ascending."""
        return np.unique(self._where.holder[self._marked(machines)[self._where.row]])

    def gpus_on(self, machines: Bools) -> Longs:
        """(holdings,): GPUs that each holds on these machines."""
        holders = self._where.gpu_holder[machines]
        return np.bincount(holders.reshape(-1) + 1, minlength=len(self._where.holdings) + 1)[1:]
