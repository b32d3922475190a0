"""When a gang could start: the first moment, as holdings end by their time limits, at which the engine places it."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf, isinf
from typing import Protocol

import numpy as np
import numpy.typing as npt

from placement.arrays import Bools
from placement.freeing import Freeing, Whereabouts
from placement.holdings import Holding
from placement.outcome import Placement
from placement.place import fits, place, place_on
from placement.request import Request
from placement.snapshot import Snapshot
from placement.soonest import not_before
from placement.topology import Topology

AT_ONCE = 0.0
"""`Earliest.at` of what could be placed without anything ending: no moment is earlier."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first moment at which the gang could be placed, and where."""

    at: float | None
    """Epoch seconds, at the latest; None: not before some holding without a time limit has ended."""
    ended: Bools
    """(holdings,): those that have ended by then."""
    placement: Placement
    waits_for: tuple[int, ...]
    """Keys of the holdings that end until then and hold something on the placement's machines, ascending."""


class Wish(Protocol):
    """What is asked of the cluster at a moment; `ended`: (holdings,), those that have ended by then.

    Once it fits it goes on fitting when more have ended.
    """

    def asked(self, ended: Bools) -> Request:
        """What the engine is asked then, at least."""
        ...

    def fits(self, cluster: Snapshot, ended: Bools) -> bool: ...

    def place(self, cluster: Snapshot, ended: Bools, keep: frozenset[str]) -> Placement:
        """Where, given that it fits; on the machines of these names when they serve."""
        ...


@dataclass(frozen=True, slots=True)
class Always:
    """The wish of one who asks for the same at every moment."""

    request: Request

    def asked(self, ended: Bools) -> Request:  # noqa: ARG002
        return self.request

    def fits(self, cluster: Snapshot, ended: Bools) -> bool:  # noqa: ARG002
        return fits(cluster, self.request)

    def place(self, cluster: Snapshot, ended: Bools, keep: frozenset[str]) -> Placement:  # noqa: ARG002
        kept = place_on(cluster, self.request, keep) if keep else None
        answer = kept or place(cluster, self.request)
        assert isinstance(answer, Placement)  # noqa: S101  (`fits` has said so)
        return answer


class Departures:
    """When holdings end, and where they are: worked out once for all who ask about one cluster."""

    def __init__(self, where: Whereabouts, ends: npt.NDArray[np.float64]) -> None:
        """`ends`: (holdings,), epoch seconds; inf: without a time limit."""
        self.where, self._ends = where, ends

    @classmethod
    def of(cls, topology: Topology, holdings: Iterable[Holding]) -> "Departures":
        """Where two hold one GPU, it is free when the later of the two has ended."""
        ordered = sorted(holdings, key=_end)
        return cls(Whereabouts.of(topology, ordered), _ends(ordered))

    def plus(self, more: Sequence[Holding]) -> "Departures":
        """With these too; what they share with others is free only when they have ended."""
        return Departures(self.where.plus(more), np.concatenate((self._ends, _ends(more))))

    def ending(self, keys: Collection[int], at: float) -> "Departures":
        """The holdings of these keys end at that moment."""
        if not keys:
            return self
        these = [holding.key in keys for holding in self.where.holdings]
        return Departures(self.where, np.where(these, at, self._ends))

    def earliest(
        self, snapshot: Snapshot, wish: Wish, *, keep: frozenset[str] = frozenset()
    ) -> Earliest | None:
        """The first moment at which the gang could be placed as holdings end by their limits, those without one last.

        `keep`: names of machines to use when they serve at that moment too. None: not even when all have ended.
        Each moment frees more than the one before, so the first that is enough is found by halving, from the one on
        before which none can be.
        """
        freeing = Freeing(snapshot, self.where)
        moments = [-inf, *np.unique(self._ends).tolist()]

        def then(number: int) -> tuple[Snapshot, Bools]:
            ended = self._ends <= moments[number]
            return (freeing.after(ended) if number else snapshot), ended

        emptied, everyone = then(len(moments) - 1)
        low = not_before(freeing, self._ends, moments, emptied, wish.asked(everyone))
        first = None if low is None else _first(low, len(moments), lambda number: wish.fits(*then(number)))
        if first is None:
            return None
        placement = wish.place(*then(first), keep)
        machines = np.array([rank.machine for rank in placement.ranks])
        there = freeing.holders_on(machines)
        gone = there[self._ends[there] <= moments[first]].tolist()
        waits_for = sorted(self.where.holdings[number].key for number in gone)
        return Earliest(_time(moments[first]), self._ends <= moments[first], placement, tuple(waits_for))


def earliest(snapshot: Snapshot, request: Request, holdings: Iterable[Holding]) -> Earliest | None:
    """The same for one who asks once."""
    return Departures.of(snapshot.topology, holdings).earliest(snapshot, Always(request))


def _ends(holdings: Sequence[Holding]) -> npt.NDArray[np.float64]:
    return np.fromiter(map(_end, holdings), np.float64, len(holdings))


def _end(holding: Holding) -> float:
    return inf if holding.ends_at is None else holding.ends_at


def _time(moment: float) -> float | None:
    if moment == -inf:
        return AT_ONCE
    return None if isinf(moment) else moment


def _first(low: int, count: int, enough: Callable[[int], bool]) -> int | None:
    """The first of the moments from `low` on that is enough, given that all later ones are too; most often `low`."""
    if enough(low):
        return low
    if not enough(count - 1):
        return None
    return bisect_left(range(low + 1, count - 1), True, key=enough) + low + 1
