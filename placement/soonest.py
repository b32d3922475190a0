"""Before which moment a gang can't start: a bound from who holds which GPUs until when, cheap beside asking the engine.

Machines that no rule refuses once everything has ended are the only ones that may serve before; each needs as many free
GPUs as a worker has. Cores, memory and quotas may put the start off further: they are left to the engine.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from placement.arrays import Bools
from placement.ask import Ask
from placement.freeing import Freeing
from placement.request import Request
from placement.room import has_room
from placement.search import Judgement
from placement.shapes import Shape
from placement.snapshot import Snapshot

_Moments = npt.NDArray[np.float64]


def not_before(
    freeing: Freeing, ends: _Moments, moments: Sequence[float], emptied: Snapshot, request: Request
) -> int | None:
    """The number of the first moment at which some domain may have room; None: none has even at the last.

    `ends`: (holdings,), when each ends; `moments`: ascending, the last one has all ended; `emptied`: the cluster then.
    """
    asks = [Ask(emptied, request, index) for index in range(len(request.groups))]
    groups = [_Group(Judgement(ask), freeing, ends) for ask in asks]

    def may_fit(number: int) -> bool:
        return all(group.has_room(moments[number]) for group in groups)

    first = bisect_left(range(len(moments)), True, key=may_fit)
    return first if first < len(moments) else None


class _Group:
    """One group alone: in each shape, from which moment on each machine may serve."""

    def __init__(self, judgement: Judgement, freeing: Freeing, ends: _Moments) -> None:
        self._ask = judgement.ask
        self._shapes = [(shape, *_ready(judgement, shape, freeing, ends)) for shape in self._ask.shapes]

    def has_room(self, moment: float) -> bool:
        return any(
            has_room(self._ask, shape, usable & (ready <= moment)) for shape, usable, ready in self._shapes
        )


def _ready(judgement: Judgement, shape: Shape, freeing: Freeing, ends: _Moments) -> tuple[Bools, _Moments]:
    """(machines,) each: whether the machine serves once all have ended, and the moment at which its GPUs may do."""
    usable = judgement.usable(shape, None)
    ready = np.full(usable.size, -np.inf)
    rows = np.flatnonzero(usable)
    if shape.gpus and rows.size:
        free = freeing.gpus_free_from(rows, ends, healthy_only=judgement.ask.group.healthy_only)
        ready[rows] = np.partition(free, shape.gpus - 1, axis=1)[:, shape.gpus - 1]
    return usable, ready
