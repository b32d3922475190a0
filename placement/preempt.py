"""Whom to stop so that a gang can start: whole gangs, only what the engine shows to be enough, the least loss.

Stopping more never leaves less room. So whether a run must be stopped is asked by leaving it running while all others
that are still in question are stopped. Up to `MOST_EXACT` runs all choices are weighed, as far as none is already too
dear. Beyond, runs are spared one after the other, once the dearest first and once the dearest for each GPU that they
hold where the gang could stand; the runs that the two ways name are then weighed exactly.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placement.arrays import Bools, Longs
from placement.freeing import Freeing, Whereabouts
from placement.holdings import Holding
from placement.outcome import Placement
from placement.place import fits, machines_open, place
from placement.request import Request
from placement.snapshot import Snapshot

MOST_EXACT = 8
"""Runs of which every choice is weighed: at most 256 looks at the cluster."""

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run that may be stopped, and what that loses."""

    holding: Holding
    loss: float
    """GPU-seconds, not negative."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """Stopping the victims, and nothing less, lets the gang start so."""

    placement: Placement
    victims: tuple[int, ...]
    """Keys of the holdings to be stopped, ascending; empty when there is room as it is."""


def preempt(snapshot: Snapshot, request: Request, candidates: Sequence[Candidate]) -> Preemption | None:
    """The runs to stop with the fewest GPU-seconds lost; None when stopping all would not be enough."""
    ordered = sorted(candidates, key=lambda one: (one.loss, one.holding.key))
    where = Whereabouts.of(snapshot.topology, [candidate.holding for candidate in ordered])
    freeing = Freeing(snapshot, where)
    usable = machines_open(freeing.after(np.ones(len(ordered), dtype=np.bool_)), request)
    if usable is None:
        return None
    stopping = _Stopping(request, ordered, freeing, usable)
    victims = _fewest(stopping, stopping.worth_stopping)
    placement = place(stopping.cluster_without(victims), request)
    assert isinstance(placement, Placement)  # noqa: S101  (`enough` has said so)
    return Preemption(placement, stopping.keys(victims))


class _Stopping:
    """The candidates by number, and whether the gang fits without some of them."""

    def __init__(
        self, request: Request, candidates: Sequence[Candidate], freeing: Freeing, usable: Bools
    ) -> None:
        """`usable`: (machines,), where the gang could stand once all have ended; there is room for it then."""
        self._request, self._candidates, self._freeing, self._usable = request, candidates, freeing, usable
        self.losses: _Floats = np.array([candidate.loss for candidate in candidates], dtype=np.float64)

    @property
    def worth_stopping(self) -> list[int]:
        """Those that hold something where the gang could stand, cheapest first; all others are nowhere in its way."""
        holders: list[int] = self._freeing.holders_on(np.flatnonzero(self._usable)).tolist()
        return holders

    def cluster_without(self, stopped: Sequence[int]) -> Snapshot:
        ended = np.zeros(len(self._candidates), dtype=np.bool_)
        ended[list(stopped)] = True
        return self._freeing.after(ended)

    def enough(self, stopped: Sequence[int]) -> bool:
        return fits(self.cluster_without(stopped), self._request)

    def loss(self, stopped: Sequence[int]) -> tuple[float, int]:
        """What is lost, then how many are stopped: to be as small as possible."""
        return float(self.losses[list(stopped)].sum()), len(stopped)

    def keys(self, stopped: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(self._candidates[number].holding.key for number in stopped))

    @property
    def gpus_in_the_way(self) -> Longs:
        """(candidates,): GPUs that each holds where the gang could stand."""
        return self._freeing.gpus_on(self._usable)


def _fewest(stopping: _Stopping, pool: list[int]) -> list[int]:
    """The cheapest of the pool that are enough; the whole pool must be."""
    if len(pool) <= MOST_EXACT:
        return _exact(stopping, pool)
    dearness = stopping.losses / np.maximum(stopping.gpus_in_the_way, 1)
    best = _spare(stopping, sorted(pool, key=lambda number: float(dearness[number])), pool)
    other = _spare(stopping, pool, best)
    named = sorted({*best, *other})
    return _exact(stopping, named) if len(named) <= MOST_EXACT else other


def _spare(stopping: _Stopping, order: Sequence[int], known: list[int]) -> list[int]:
    """Spares whom it can, the last in this order first, so that none of those left could be spared as well.

    `known`: a choice that is enough; it is the answer when this way turns out no cheaper.
    """
    stopped: list[int] = []
    end = len(order)
    while not stopping.enough(stopped):
        if stopping.loss(stopped) >= stopping.loss(known):
            return known
        end = _shortest(stopping, stopped, order[:end])
        stopped = [*stopped, order[end - 1]]
        end -= 1
    return stopped if stopping.loss(stopped) < stopping.loss(known) else known


def _shortest(stopping: _Stopping, stopped: Sequence[int], order: Sequence[int]) -> int:
    """How many of the order must be stopped beside the others at least, as a beginning of it; all of it is enough.

    Looked for in steps that double, from the end: where most must be stopped, few looks are needed.
    """

    def enough(length: int) -> bool:
        return stopping.enough([*stopped, *order[:length]])

    high, step = len(order), 1
    while high >= step and enough(high - step):
        high, step = high - step, 2 * step
    low = max(high - step + 1, 1)
    return low + bisect_left(range(low, high), True, key=enough)


def _exact(stopping: _Stopping, pool: Sequence[int]) -> list[int]:
    """The cheapest choice of all: from the dearest on, each is spared where that can be, then stopped as well."""
    best = list(pool)

    def descend(stopped: list[int], undecided: list[int]) -> None:
        nonlocal best
        if stopping.loss(stopped) >= stopping.loss(best):
            return
        if not undecided:
            best = stopped
            return
        *cheaper, dearest = undecided
        if stopping.enough([*stopped, *cheaper]):
            descend(stopped, cheaper)
        descend([*stopped, dearest], cheaper)

    descend([], list(pool))
    return best
