"""Changes to how many GPUs and machines are asked for."""

from collections.abc import Iterator
from math import log2
from typing import Any

from placement.outcome import Placement
from placement.room import room
from placement.shapes import Shape
from placement.whatif.bench import Bench, Case
from placement.whatif.changes import Code, WhatIf
from placement.whatif.requests import first

_MOST_SPLITS = 2
"""Other numbers of machines offered, the nearest to what was asked."""

_MOST_COUNTS = 12
"""Smaller numbers of GPUs tried, the largest first."""


def machines(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Another exact number of machines, or whatever number Astraeus finds best."""
    asked, group = case.group.machines, case.group
    if asked is None or not group.gpus:
        return
    change = case.change(Code.MACHINES_FREE, {"asked": asked}, {"machines": None})
    free = bench.attempt(case, change, request=case.request_with(machines=None))
    if free is None and group.min_per_machine == 1:
        return  # Every other number is among those that Astraeus may choose.
    helped = 0
    for count in _other_numbers(case, asked):
        for offer in first([_try_machines(bench, case, count)]):
            helped += 1
            yield offer
        if helped == _MOST_SPLITS:
            break
    yield from first([free])


def _other_numbers(case: Case, asked: int) -> list[int]:
    """Numbers of machines over which the GPUs can be split, nearest first."""
    gpus, most = case.group.gpus, case.ask.topology.most_gpus
    splits = [split for split in range(1, min(gpus, most) + 1) if gpus % split == 0]
    numbers = [gpus // split for split in splits if gpus // split != asked]
    return sorted(numbers, key=lambda number: (abs(log2(number / asked)), number))


def _try_machines(bench: Bench, case: Case, count: int) -> WhatIf | None:
    numbers = {"asked": case.group.machines, "instead": count, "gpus": case.group.gpus // count}
    change = case.change(Code.MACHINES, numbers, {"machines": count})
    return bench.attempt(case, change, request=case.request_with(machines=count))


def node_range(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """A range of machines that reaches as far as is needed."""
    group = case.group
    if group.gpus and (group.min_nodes or group.max_nodes):
        answer = bench.place(case.snapshot, case.request_with(min_nodes=None, max_nodes=None))
        if isinstance(answer, Placement):
            count = answer.groups[case.index].shape.machines
            yield from first([_try_range(bench, case, count)])


def _try_range(bench: Bench, case: Case, count: int) -> WhatIf | None:
    low, high = case.group.min_nodes, case.group.max_nodes
    fewest = None if low is None else min(low, count)
    most = None if high is None else max(high, count)
    change = case.change(
        Code.NODE_RANGE,
        {"asked": [low, high], "instead": [fewest, most]},
        {"topology": {"min_nodes": fewest, "max_nodes": most}},
    )
    return bench.attempt(case, change, request=case.request_with(min_nodes=fewest, max_nodes=most))


def min_per_machine(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Smaller slices on each machine."""
    group = case.group
    if group.machines is None and group.gpus:
        smaller = [size for size in range(group.min_per_machine - 1, 0, -1) if group.gpus % size == 0]
        yield from first(_try_slice(bench, case, size) for size in smaller)


def _try_slice(bench: Bench, case: Case, size: int) -> WhatIf | None:
    numbers = {"asked": case.group.min_per_machine, "instead": size}
    change = case.change(Code.MIN_PER_MACHINE, numbers, {"gpu_requests": {"min_per_machine": size}})
    return bench.attempt(case, change, request=case.request_with(min_per_machine=size))


def fewer_gpus(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """As many GPUs as there is room for, on as many machines where their number is fixed."""
    group = case.group
    if not group.gpus:
        return
    if group.machines is None:
        yield from first(_try_gpus(bench, case, count) for count in _counts(case))
    else:
        yield from first([_largest_split(bench, case, group.machines)])


def _largest_split(bench: Bench, case: Case, machines: int) -> WhatIf | None:
    """By halving: where so many GPUs on each machine find room, fewer do too."""
    largest = case.ask.topology.most_gpus
    low, high = 0, min(largest, (case.group.gpus - 1) // machines) + 1
    best = None
    while high - low > 1:
        middle = (low + high) // 2
        offer = _try_gpus(bench, case, middle * machines)
        low, high, best = (middle, high, offer) if offer else (low, middle, best)
    return best


def _try_gpus(bench: Bench, case: Case, count: int) -> WhatIf | None:
    numbers = {"asked": case.group.gpus, "instead": count}
    change = case.change(Code.FEWER_GPUS, numbers, {"gpu_requests": {"count": count}})
    return bench.attempt(case, change, request=case.request_with(gpus=count))


def _counts(case: Case) -> list[int]:
    """Numbers of GPUs for which some domain has machines enough in some split, largest first."""
    group, most = case.group, case.ask.topology.most_gpus
    counts: set[int] = set()
    for split in range(max(group.min_per_machine, 1), min(most, group.gpus - 1) + 1):
        top = min(_most_machines(case, split), (group.gpus - 1) // split, group.max_nodes or group.gpus)
        counts |= {machines * split for machines in range(max(group.min_nodes or 1, top - 2), top + 1)}
    return sorted(counts, reverse=True)[:_MOST_COUNTS]


def _most_machines(case: Case, split: int) -> int:
    """Machines that one domain has for workers with so many GPUs."""
    shape = Shape(2, split)
    usable = case.judgement.outcome(shape).usable
    return max(int(usable.any()), int(room(case.ask, shape, usable).counts.max(initial=0)))


def fewer_machines(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """As many machines as there is room for, each with as much as was asked."""
    asked = case.group.machines
    if asked is None:
        return
    usable = case.outcome.usable
    found = max(int(usable.any()), int(room(case.ask, case.shape, usable).counts.max(initial=0)))
    if count := min(found, asked - 1):
        yield from first([_try_fewer(bench, case, count, case.shape.gpus)])


def _try_fewer(bench: Bench, case: Case, count: int, split: int) -> WhatIf | None:
    numbers = {
        "asked": case.group.machines,
        "instead": count,
        "asked_gpus": case.group.gpus,
        "gpus": count * split,
    }
    fields: dict[str, Any] = {"machines": count, "gpus": count * split}
    patch: dict[str, Any] = {"machines": count}
    if split:
        patch["gpu_requests"] = {"count": count * split}
    change = case.change(Code.FEWER_MACHINES, numbers, patch)
    return bench.attempt(case, change, request=case.request_with(**fields))
