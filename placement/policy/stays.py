"""What runs hold of pools, and what of it is gone at a moment: what quotas will have got back by then."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from placement.arrays import UNKNOWN, Bools, Longs
from placement.facts import MachineState
from placement.freeing import Whereabouts
from placement.policy.jobs import Running
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
    def of_runs(cls, running: Iterable[Running]) -> "Owners":
        return cls.of([(run.workspace, not run.preemptible and not run.leaving) for run in running])

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
        self._takes_runs: Bools = snapshot.state[row] == OPEN

    def gone(self, ended: Bools) -> Gone:
        """What these have given back; `ended`: (holdings,)."""
        over = ended[self._holder]
        firm = over & self._firm
        return Gone(self._sums(over), self._sums(firm), self._by_pool(firm & self._takes_runs))

    def lent(self) -> Counter[str]:
        """What can be taken back, on machines that take runs."""
        return self._by_pool(~self._firm & self._takes_runs)

    def _by_pool(self, these: Bools) -> Counter[str]:
        sums: Counter[str] = Counter()
        for (_, pool), gpus in self._sums(these).items():
            sums[pool] += gpus
        return sums

    def _sums(self, these: Bools) -> Counter[Cell]:
        sums = np.bincount(self._cell[these], weights=self._gpus[these], minlength=len(self._cells))
        return Counter({self._cells[number]: int(sums[number]) for number in np.flatnonzero(sums)})
