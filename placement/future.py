"""When a gang could start: the first moment, as holdings end by their time limits, at which the engine places it."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isinf

import numpy as np

from placement.freeing import Freeing
from placement.holdings import Holding
from placement.outcome import Placement
from placement.place import fits, place, place_on
from placement.request import Request
from placement.snapshot import Snapshot

AT_ONCE = 0.0
"""`Earliest.at` of what could be placed without anything ending: no moment is earlier."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first moment at which the gang could be placed, and where."""

    at: float | None
    """Epoch seconds, at the latest; None: not before some holding without a time limit has ended."""
    placement: Placement
    waits_for: tuple[int, ...]
    """Keys of the holdings that end until then and hold something on the placement's machines, ascending."""


def earliest(
    snapshot: Snapshot, request: Request, holdings: Sequence[Holding], *, keep: frozenset[str] = frozenset()
) -> Earliest | None:
    """The first moment at which the gang could be placed as holdings end by their limits, those without one last.

    `keep`: names of machines to use when they serve at that moment too. None: not even when all have ended.
    Each moment frees more than the one before, so the first that is enough is found by halving.
    """
    ordered = sorted(holdings, key=_end)
    ends = np.array([_end(holding) for holding in ordered], dtype=np.float64)
    freeing = Freeing(snapshot, ordered)
    moments = [-inf, *np.unique(ends).tolist()]

    def cluster_after(number: int) -> Snapshot:
        return freeing.after(ends <= moments[number]) if number else snapshot

    first = _first(len(moments), lambda number: fits(cluster_after(number), request))
    if first is None:
        return None
    placement = _placement(cluster_after(first), request, keep)
    machines = np.array([rank.machine for rank in placement.ranks])
    there = [ordered[number] for number in freeing.holders_on(machines) if ends[number] <= moments[first]]
    return Earliest(_time(moments[first]), placement, tuple(sorted(holding.key for holding in there)))


def _end(holding: Holding) -> float:
    return inf if holding.ends_at is None else holding.ends_at


def _time(moment: float) -> float | None:
    if moment == -inf:
        return AT_ONCE
    return None if isinf(moment) else moment


def _first(count: int, enough: Callable[[int], bool]) -> int | None:
    """The first of so many moments that is enough, given that all later ones are too."""
    if not enough(count - 1):
        return None
    return bisect_left(range(count - 1), True, key=enough)


def _placement(snapshot: Snapshot, request: Request, keep: frozenset[str]) -> Placement:
    kept = place_on(snapshot, request, keep) if keep else None
    answer = kept or place(snapshot, request)
    assert isinstance(answer, Placement)  # noqa: S101  (`fits` has said so)
    return answer
