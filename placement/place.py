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

from placement.ask import Ask
from placement.gang import search_together
from placement.outcome import Placement, Refusal
from placement.ranks import group_placement
from placement.refusals import refuse, refuse_together
from placement.request import Request
from placement.search import Found, Judgement, search
from placement.snapshot import Snapshot


def place(snapshot: Snapshot, request: Request) -> Placement | Refusal:
    """Where every worker of the gang goes, or why no set of machines can hold it now."""
    judgements = [Judgement(Ask(snapshot, request, index)) for index in range(len(request.groups))]
    alone = [search(judgement) for judgement in judgements]
    for judgement, found in zip(judgements, alone, strict=True):
        if found is None:
            return refuse(judgement)
    if len(judgements) == 1:
        return _placement(judgements, [found for found in alone if found])
    together = search_together(judgements)
    return refuse_together(judgements) if together is None else _placement(judgements, together)


def _placement(judgements: Sequence[Judgement], founds: Sequence[Found]) -> Placement:
    groups, first_rank = [], 0
    for judgement, found in zip(judgements, founds, strict=True):
        groups.append(group_placement(judgement.ask, found, judgement.outcome(found.shape), first_rank))
        first_rank += found.shape.machines
    return Placement(tuple(groups))
