"""Placement of one gang: the whole algorithm, in the order in which it runs.

1. **Filters** (`filters.py`): every rule on every machine, no early exit; what passes all of them is usable.
2. **Slots** (`shapes.py`, `domains.py`): one worker per machine, so a usable machine is a slot for its shape.
3. **Domains** (`topology.py`): slots summed per NVLink domain, rack and fabric, as verdict and `keep_within` require.
4. **Choice** (`search.py`, `domains.py`): best network verdict with room → fewest machines → least lemons → tightest
   domain → least fragmentation → healthy before suspect → name.
5. **Ranks** (`ranks.py`, `gpus.py`): neighbours get neighbouring ranks; exact GPUs, cores, memory and ports.

Several groups are one gang (`gang.py`): each is placed as above beside the others; when that fails, every combination
of domains is looked at before the gang is refused (`refusals.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placement.arrays import Bools
from placement.ask import Ask
from placement.gang import search_together
from placement.outcome import Cause, Placement, Refusal
from placement.ranks import group_placement
from placement.refusals import refuse, refuse_together
from placement.request import Request
from placement.rules import any_of
from placement.search import Found, Judgement, fits_alone, search
from placement.snapshot import Snapshot


def place(snapshot: Snapshot, request: Request) -> Placement | Refusal:
    """Where every worker of the gang goes, or why no set of machines can hold it now."""
    answer = placed(snapshot, request)
    return answer.refusal if isinstance(answer, NoRoom) else answer


@dataclass(frozen=True)
class NoRoom:
    """A gang that cannot be placed; why, is worked out when it is asked for."""

    judgements: Sequence[Judgement]
    lacking: Judgement | None
    """Of the first group that fits nowhere even alone; None: each fits alone, and not all together."""

    @cached_property
    def refusal(self) -> Refusal:
        return refuse_together(self.judgements) if self.lacking is None else refuse(self.lacking)


def placed(snapshot: Snapshot, request: Request) -> Placement | NoRoom:
    """The same answer, for one who seldom asks why there is no room."""
    return _placed(_judgements(snapshot, request))


def _placed(judgements: Sequence[Judgement]) -> Placement | NoRoom:
    alone: list[Found] = []
    for judgement in judgements:
        found = search(judgement)
        if found is None:
            return NoRoom(judgements, judgement)
        alone.append(found)
    founds = search_together(judgements, alone)
    return NoRoom(judgements, None) if founds is None else _placement(judgements, founds)


def place_on(snapshot: Snapshot, request: Request, names: frozenset[str]) -> Placement | None:
    """The best placement that uses these machines only, if there is one."""
    closed = np.ones(snapshot.topology.size, dtype=np.bool_)
    closed[snapshot.topology.rows_named(names)] = False
    answer = _placed(_judgements(snapshot, request, closed))
    return answer if isinstance(answer, Placement) else None


def fits(snapshot: Snapshot, request: Request) -> bool:
    """Whether `place` would give a placement; cheaper than asking it for one."""
    return _all_fit(_judgements(snapshot, request))


def fits_unreserved(refusal: Refusal) -> bool:
    """Whether the gang that was refused would have been placed, had no machine been reserved."""
    ask = refusal.outcome.ask
    if not ask.request.reserved:
        return False
    if len(ask.request.groups) > 1:
        return fits(ask.snapshot, replace(ask.request, reserved=frozenset()))
    return refusal.cause is Cause.MACHINES_RESERVED  # of one group the refusal has looked


def machines_open(snapshot: Snapshot, request: Request) -> Bools | None:
    """(machines,): machines that pass every rule for some group in some shape; None where `place` would refuse."""
    judgements = _judgements(snapshot, request)
    if not _all_fit(judgements):
        return None
    shapes = [(judgement, shape) for judgement in judgements for shape in judgement.ask.shapes]
    return any_of([judgement.usable(shape, None) for judgement, shape in shapes])


def _judgements(snapshot: Snapshot, request: Request, closed: Bools | None = None) -> list[Judgement]:
    return [Judgement(Ask(snapshot, request, index), closed) for index in range(len(request.groups))]


def _all_fit(judgements: Sequence[Judgement]) -> bool:
    """Whether there is room for all groups at once."""
    if not all(map(fits_alone, judgements)):
        return False
    return len(judgements) == 1 or isinstance(_placed(judgements), Placement)


def _placement(judgements: Sequence[Judgement], founds: Sequence[Found]) -> Placement:
    groups, first_rank = [], 0
    for judgement, found in zip(judgements, founds, strict=True):
        groups.append(group_placement(judgement.ask, found, judgement.outcome(found.shape), first_rank))
        first_rank += found.shape.machines
    return Placement(tuple(groups))
