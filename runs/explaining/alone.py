"""Offers for a worker that starts on its own, as its run's document has to say them.

The engine is asked about one worker; the document speaks of all of its group. So a number of GPUs is told for all of
them, and what would divide the worker over other machines is no offer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from placement.whatif import Change, Code, WhatIf
from runs.models import Run, Worker

Data = Mapping[str, Any]

OTHER_SHAPES = frozenset(
    {Code.MACHINES, Code.MACHINES_FREE, Code.NODE_RANGE, Code.MIN_PER_MACHINE, Code.FEWER_MACHINES}
)


def workers_alike(child: Run) -> int:
    """Workers of the child's group."""
    own = Worker.objects.get(run=child)
    return Worker.objects.filter(run__parent=child.parent_id, active=True, group=own.group).count()


def offers_for_all(found: Iterable[WhatIf], workers: int) -> list[WhatIf]:
    """What `workers` equal workers are to be told."""
    return [
        replace(each, changes=tuple(_for_all(change, workers) for change in each.changes))
        for each in found
        if not any(change.code in OTHER_SHAPES for change in each.changes)
    ]


def _for_all(change: Change, workers: int) -> Change:
    if change.code != Code.FEWER_GPUS:
        return change
    numbers = {name: count * workers for name, count in change.numbers.items()}
    return replace(change, numbers=numbers, patch=_times(change.patch, workers))


def _times(patch: Data, workers: int) -> dict[str, Any]:
    """The patch with its one number, however deep it lies, times the workers."""
    return {
        name: _times(value, workers) if isinstance(value, Mapping) else value * workers
        for name, value in patch.items()
    }


def possible_for_all(changes: Iterable[Data], workers: int) -> list[dict[str, Any]]:
    """The same of changes that make a run possible at all (`placement.ever.Change` as data)."""
    found = []
    for change in changes:
        asked, fits = change["asked"], change["would_fit"]
        if change["field"] == "gpu_requests.count" and not isinstance(fits, Mapping):
            found.append({**change, "asked": asked * workers, "would_fit": fits * workers})
        elif change["field"] not in {"machines", "gpu_requests.count"}:
            found.append(dict(change))
    return found
