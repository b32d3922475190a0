"""Changes to which machines the request admits, and to what policy and order close to it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from placement.arrays import UNKNOWN
from placement.outcome import Placement
from placement.request import Request, Selection
from placement.whatif.bench import Bench, Case
from placement.whatif.changes import Change, Code, WhatIf
from placement.whatif.requests import first

_Opened = Callable[[frozenset[str]], tuple[Change, Request]]
"""What is changed to open these machines or pools, and the request with it."""

_MOST_POOLS = 12


def excluded(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Machines that the request leaves out, as few as are needed."""
    left_out = case.group.selection.exclude_machines

    def without(names: frozenset[str]) -> tuple[Change, Request]:
        kept = left_out - names
        patch = {"node_selection": {"exclude_machines": sorted(kept)}}
        change = case.change(Code.EXCLUDE_FEWER, {"machines": sorted(names)}, patch)
        return change, _selecting(case, exclude_machines=kept)

    yield from first([_fewest(bench, case, left_out, without, _machines_used)])


def pools(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """One more pool that the workspace may use; all of them only where no single one is enough."""
    asked = case.group.selection.pools
    if asked is None:
        return
    allowed = case.request.allowed_pools
    present = case.ask.topology.pools
    others = [pool for pool in present if pool not in asked and (allowed is None or pool in allowed)]
    helped = False
    for pool in others[:_MOST_POOLS]:
        for offer in first([_try_pool(bench, case, asked, pool)]):
            helped = True
            yield offer
    if not helped and len(others) > 1:
        patch = {"node_selection": {"mode": "Any", "pools": None}}
        change = case.change(Code.ANY_POOL, {"asked": sorted(asked)}, patch)
        yield from first([bench.attempt(case, change, request=_selecting(case, pools=None))])


def _try_pool(bench: Bench, case: Case, asked: frozenset[str], pool: str) -> WhatIf | None:
    both = asked | {pool}
    patch = {"node_selection": {"pools": sorted(both)}}
    change = case.change(Code.OTHER_POOL, {"asked": sorted(asked), "pool": pool}, patch)
    return bench.attempt(case, change, request=_selecting(case, pools=both))


def named(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Other machines than those that the request names."""
    asked = case.group.selection.machines
    if asked is not None:
        patch = {"node_selection": {"mode": "Any", "machines": None}}
        change = case.change(Code.ANY_MACHINE, {"asked": sorted(asked)}, patch)
        yield from first([bench.attempt(case, change, request=_selecting(case, machines=None))])


def labels(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Without one of the labels; without all only where no single one is enough."""
    asked = dict(case.group.selection.match_labels)
    helped = False
    for key in sorted(asked):
        for offer in first([_try_labels(bench, case, asked, [key])]):
            helped = True
            yield offer
    if not helped and len(asked) > 1:
        yield from first([_try_labels(bench, case, asked, sorted(asked))])


def _try_labels(bench: Bench, case: Case, asked: dict[str, str], dropped: list[str]) -> WhatIf | None:
    left = {key: value for key, value in asked.items() if key not in dropped}
    part: dict[str, Any] = {"match_labels": dict.fromkeys(dropped)}
    if not left:
        part = {"mode": "Any", "match_labels": None}
    numbers = {"labels": [f"{key}={asked[key]}" for key in dropped]}
    change = case.change(Code.FEWER_LABELS, numbers, {"node_selection": part})
    return bench.attempt(case, change, request=_selecting(case, match_labels=left))


def preemptible(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """A run that may be stopped may borrow GPUs that are guaranteed to others."""
    closed = case.request.guaranteed_to_others
    if closed:
        change = Change(Code.PREEMPTIBLE, {"pools": sorted(closed)}, None, {"preemptible": True})
        opened = replace(case.request, guaranteed_to_others=frozenset())
        yield from first([bench.attempt(case, change, request=opened)])


def cap(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """The workspace's cap, in the pools that are needed."""
    closed = case.request.over_cap

    def raised(pools: frozenset[str]) -> tuple[Change, Request]:
        change = Change(Code.RAISE_CAP, {"pools": sorted(pools)})
        return change, replace(case.request, over_cap=closed - pools)

    def pools_used(placement: Placement) -> frozenset[str]:
        topology = case.ask.topology
        rows = {row for group in placement.groups for row in topology.pool[group.machines].tolist()}
        return frozenset(topology.pools[row] for row in rows - {UNKNOWN})

    yield from first([_fewest(bench, case, closed, raised, pools_used)])


def reserved(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Machines that are kept for a run that goes first."""
    closed = case.request.reserved

    def opened(names: frozenset[str]) -> tuple[Change, Request]:
        change = Change(Code.WAIT_RESERVED, {"machines": sorted(names)})
        return change, replace(case.request, reserved=closed - names)

    yield from first([_fewest(bench, case, closed, opened, _machines_used)])


def _fewest(
    bench: Bench,
    case: Case,
    closed: frozenset[str],
    opened: _Opened,
    used: Callable[[Placement], frozenset[str]],
) -> WhatIf | None:
    """Everything opened; when that helps, only what the placement uses of it."""
    if not closed:
        return None
    change, request = opened(closed)
    offer = bench.attempt(case, change, request=request)
    if offer is None or closed <= used(offer.placement):
        return offer
    change, request = opened(closed & used(offer.placement))
    return bench.attempt(case, change, request=request)


def _machines_used(placement: Placement) -> frozenset[str]:
    return frozenset(name for group in placement.groups for name in group.machine_names)


def _selecting(case: Case, **fields: Any) -> Request:
    selection: Selection = replace(case.group.selection, **fields)
    return case.request_with(selection=selection)
