"""What runs hold of pools, and what of it is gone at a moment: what quotas will have got back by then."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from placement.arrays import UNKNOWN, Bools, Longs
from placement.facts import MachineState
from placement.freeing import Whereabouts
from placement.snapshot import Snapshot

Cell = tuple[int, str]
"""A workspace and the name of a pool."""

OPEN = np.uint8(int(MachineState.READY))


@dataclass(frozen=True, slots=True)
class Gone:
    """GPUs that ends give back."""

    used: Counter[Cell]
    firm: Counter[Cell]
    """Of these, what could not have been taken back."""
    opened: Counter[str]
    """Of these, what is on machines that take runs."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Whose holdings are: workspaces, with runs that can or can't be taken back."""

    workspace: Longs
    """(holdings,)"""
    firm: Bools
    """(holdings,): it can't be taken back."""

    @classmethod
    def of(cls, owners: Collection[tuple[int, bool]]) -> "Owners":
        """`owners`: workspace and whether it is firm, of each holding."""
        workspace = np.fromiter((each for each, _ in owners), np.int64, len(owners))
        return cls(workspace, np.fromiter((firm for _, firm in owners), np.bool_, len(owners)))

    def plus(self, more: "Owners") -> "Owners":
        """With these behind those that are known."""
        return Owners(
            np.concatenate((self.workspace, more.workspace)), np.concatenate((self.firm, more.firm))
        )


class Stays:
    """Who holds how many GPUs of which pool, in the order of `where.holdings`."""

    def __init__(self, snapshot: Snapshot, where: Whereabouts, owners: Owners) -> None:
        topology = where.topology
        workspaces, number = np.unique(owners.workspace, return_inverse=True)
        self._cells: list[Cell] = [(each, pool) for each in workspaces.tolist() for pool in topology.pools]
        pool = topology.pool[where.row]
        known = np.flatnonzero((pool != UNKNOWN) & (where.gpus > 0))
        row, self._holder, self._gpus = where.row[known], where.holder[known], where.gpus[known]
        self._cell: Longs = number[self._holder] * len(topology.pools) + pool[known]
        self._firm: Bools = owners.firm[self._holder]
        self._opens: Bools = self._firm & (snapshot.state[row] == OPEN)

    def gone(self, ended: Bools) -> Gone:
        """What these have given back; `ended`: (holdings,)."""
        over = ended[self._holder]
        opened: Counter[str] = Counter()
        for (_, pool), gpus in self._sums(over & self._opens).items():
            opened[pool] += gpus
        return Gone(self._sums(over), self._sums(over & self._firm), opened)

    def _sums(self, these: Bools) -> Counter[Cell]:
        sums = np.bincount(self._cell[these], weights=self._gpus[these], minlength=len(self._cells))
        return Counter({self._cells[number]: int(sums[number]) for number in np.flatnonzero(sums)})
