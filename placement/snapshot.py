"""The cluster at one moment: the fixed `Topology` and the arrays that change as runs are placed and end."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from placement.arrays import Bools, Bytes, Ints, Longs, patched, read_only
from placement.facts import MachineState
from placement.holdings import Hold, locate
from placement.topology import Topology

if TYPE_CHECKING:
    from placement.outcome import Placement

GPU_PRESENT, GPU_HELD, GPU_SUSPECT, GPU_FAULTY = 1, 2, 4, 8
"""Bits of `Snapshot.gpu_state`; 0: no GPU in that slot."""

EMPTIED = "emptied"
"""Under this name a topology remembers its cluster without any run, all of it repaired."""

FREE_HEALTHY = GPU_PRESENT
FREE_SUSPECT = GPU_PRESENT | GPU_SUSPECT


@dataclass(frozen=True)
class Snapshot:
    """All arrays are read-only; a change is a new snapshot that shares what did not change."""

    topology: Topology
    state: Bytes
    """(machines,): `MachineState` bits."""
    gpu_state: Bytes
    """(machines, slots): GPU bits above."""
    free_healthy: Ints
    """(machines,): GPUs that are free and show no sign of a fault."""
    free_suspect: Ints
    """(machines,): GPUs that are free and show a warning sign."""
    suspect: Ints
    """(machines,): GPUs with a warning sign, free or held, faulty ones not counted."""
    faulty: Ints
    """(machines,): GPUs never to be used."""
    cpu_free: Longs
    """(machines,): millicores."""
    memory_free: Longs
    """(machines,): bytes."""

    @property
    def names(self) -> tuple[str, ...]:
        """Machine names, sorted: row i of every array is machine names[i]."""
        return self.topology.names

    @cached_property
    def gpus_free(self) -> Ints:
        """(machines,): healthy and suspect ones."""
        return np.asarray(self.free_healthy + self.free_suspect)

    @cached_property
    def whole(self) -> Bools:
        """(machines,): nobody holds any of its GPUs, but for faulty ones."""
        return np.asarray(self.gpus_free == self.topology.gpus_total - self.faulty)

    def take(self, placement: "Placement") -> "Snapshot":
        """The cluster with this placement's workers on it."""
        return self.held(placement.holds)

    def give_back(self, placement: "Placement") -> "Snapshot":
        """The cluster without these workers again."""
        return self.released(placement.holds)

    def held(self, holds: Iterable[Hold]) -> "Snapshot":
        """The cluster with these holds taken too; machines and GPUs that it lacks are passed over."""
        return self._hold(holds, taken=True)

    def released(self, holds: Iterable[Hold]) -> "Snapshot":
        """The cluster after these holds have ended; machines and GPUs that it lacks are passed over."""
        return self._hold(holds, taken=False)

    def emptied(self, *, repaired: bool) -> "Snapshot":
        """The cluster without any run; with `repaired` also with every machine ready, every GPU and port sound."""
        if repaired:
            return self.topology.remember((EMPTIED,), self._emptied_and_repaired)
        gpu_state = self.gpu_state & np.uint8(0xFF ^ GPU_HELD)
        return replace(
            self,
            gpu_state=read_only(gpu_state),
            free_healthy=count_slots(gpu_state == FREE_HEALTHY),
            free_suspect=count_slots(gpu_state == FREE_SUSPECT),
            cpu_free=self.topology.cpu_total,
            memory_free=self.topology.memory_total,
        )

    def _emptied_and_repaired(self) -> "Snapshot":
        """Follows from the topology alone: what is left of a GPU's state is that it is there."""
        return from_gpu_state(
            self.topology.repaired,
            state=np.full_like(self.state, MachineState.READY),
            gpu_state=self.gpu_state & np.uint8(GPU_PRESENT),
            cpu_free=self.topology.cpu_total,
            memory_free=self.topology.memory_total,
        )

    def _hold(self, holds: Iterable[Hold], *, taken: bool) -> "Snapshot":
        where = locate(self.topology, holds)
        gpu_state = self.gpu_state.copy()
        if taken:
            gpu_state[where.gpu_row, where.gpu_slot] |= GPU_HELD
        else:
            gpu_state[where.gpu_row, where.gpu_slot] &= 0xFF ^ GPU_HELD
        there = gpu_state[where.row]
        move = np.subtract.at if taken else np.add.at
        cpu_free, memory_free = self.cpu_free.copy(), self.memory_free.copy()
        move(cpu_free, where.row, where.cpu)
        move(memory_free, where.row, where.memory)
        return Snapshot(
            self.topology,
            self.state,
            read_only(gpu_state),
            patched(self.free_healthy, where.row, count_slots(there == FREE_HEALTHY)),
            patched(self.free_suspect, where.row, count_slots(there == FREE_SUSPECT)),
            self.suspect,
            self.faulty,
            read_only(cpu_free),
            read_only(memory_free),
        )


def from_gpu_state(
    topology: Topology, *, state: Bytes, gpu_state: Bytes, cpu_free: Longs, memory_free: Longs
) -> Snapshot:
    """A snapshot whose per-machine GPU counts are counted from `gpu_state`."""
    sound = (gpu_state & GPU_FAULTY) == 0

    return Snapshot(
        topology=topology,
        state=read_only(state),
        gpu_state=read_only(gpu_state),
        free_healthy=count_slots(gpu_state == FREE_HEALTHY),
        free_suspect=count_slots(gpu_state == FREE_SUSPECT),
        suspect=count_slots(((gpu_state & GPU_SUSPECT) != 0) & sound),
        faulty=count_slots(~sound),
        cpu_free=read_only(cpu_free),
        memory_free=read_only(memory_free),
    )


def count_slots(mask: Bools) -> Ints:
    """(machines,): how many of a machine's slots are marked; `mask`: (machines, slots)."""
    # A product is many times faster than sums over short rows, and exact for such small numbers.
    return read_only((mask.astype(np.float32) @ np.ones(mask.shape[1], dtype=np.float32)).astype(np.int32))
