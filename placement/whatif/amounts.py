"""Changes to how many cores and how much memory each worker gets: as much as enough machines have free."""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from placement.arrays import Longs, starts
from placement.room import room
from placement.rules import Rule
from placement.whatif.bench import Bench, Case
from placement.whatif.changes import Code, WhatIf
from placement.whatif.requests import first

_CORE = 1000
_GIB, _MIB = 1 << 30, 1 << 20


def less_cpu(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Cores, whole ones, as documents count them."""
    group, gpus = case.group, case.shape.gpus
    if group.cpu_millicores is None and not (gpus and group.cpu_millicores_per_gpu):
        return
    free = _reachable(case, (Rule.CPU_SHORT,), case.snapshot.cpu_free)
    per_gpu = group.cpu_millicores is None
    field = "cpu_millicores_per_gpu" if per_gpu else "cpu_millicores"
    cores = free // (_CORE * gpus if per_gpu else _CORE)
    asked = getattr(group, field)
    if 0 < cores * _CORE < asked:
        numbers = {"asked": asked, "instead": cores * _CORE, "per_gpu": per_gpu}
        part = {"per_gpu": {"cpu_cores": cores}} if per_gpu else {"cpu_cores": cores}
        change = case.change(Code.LESS_CPU, numbers, part)
        yield from first([bench.attempt(case, change, request=case.request_with(**{field: cores * _CORE}))])


def less_memory(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Memory, in whole GiB where it is that much."""
    group, gpus = case.group, case.shape.gpus
    if group.memory_bytes is None and not (gpus and group.memory_bytes_per_gpu):
        return
    free = _reachable(case, (Rule.MEMORY_SHORT,), case.snapshot.memory_free)
    per_gpu = group.memory_bytes is None
    field = "memory_bytes_per_gpu" if per_gpu else "memory_bytes"
    size = _round(free // gpus if per_gpu else free)
    asked = getattr(group, field)
    if 0 < size < asked:
        numbers = {"asked": asked, "instead": size, "per_gpu": per_gpu}
        part = {"per_gpu": {"memory_bytes": size}} if per_gpu else {"memory_bytes": size}
        change = case.change(Code.LESS_MEMORY, numbers, part)
        yield from first([bench.attempt(case, change, request=case.request_with(**{field: size}))])


def fixed_amounts(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Amounts in place of the GPUs' share, where other runs took more than theirs."""
    group, gpus = case.group, case.shape.gpus
    if not gpus or any(
        (group.cpu_millicores, group.cpu_millicores_per_gpu, group.memory_bytes, group.memory_bytes_per_gpu)
    ):
        return
    best = _best_machines(case)
    if not best.size:
        return
    cores = int(np.minimum(case.snapshot.cpu_free, case.ask.cpu_needed(gpus))[best].min()) // _CORE
    size = _round(int(np.minimum(case.snapshot.memory_free, case.ask.memory_needed(gpus))[best].min()))
    if cores > 0 and size > 0:
        amounts: dict[str, Any] = {"cpu_millicores": cores * _CORE, "memory_bytes": size}
        change = case.change(Code.FIXED_AMOUNTS, amounts, {"cpu_cores": cores, "memory_bytes": size})
        yield from first([bench.attempt(case, change, request=case.request_with(**amounts))])


def _best_machines(case: Case) -> Longs:
    """Machines of one domain, as many as are needed, that have most of their share of cores and memory free."""
    short = (Rule.CPU_SHORT, Rule.MEMORY_SHORT)
    cpu = case.snapshot.cpu_free / np.maximum(case.ask.cpu_needed(case.shape.gpus), 1)
    memory = case.snapshot.memory_free / np.maximum(case.ask.memory_needed(case.shape.gpus), 1)
    ordered, start, last = _last_needed(case, short, np.minimum(cpu, memory))
    if not last.size:
        return last
    best = int(np.argmax(np.minimum(cpu, memory)[ordered[last]]))
    return ordered[start[best] : last[best] + 1]


def _reachable(case: Case, rules: Collection[Rule], free: Longs) -> int:
    """The largest amount that as many machines as are needed have free in one domain; 0 when no domain has so many."""
    ordered, _, last = _last_needed(case, rules, free)
    return int(free[ordered[last]].max(initial=0))


def _last_needed(
    case: Case, rules: Collection[Rule], amount: "npt.NDArray[Any]"
) -> tuple[Longs, Longs, Longs]:
    """Machines that these rules alone refuse, or none, by domain, those with most first; and for each domain with
    enough of them the positions of the first and of the last that is needed."""
    if not any(rule in case.outcome.refused and case.outcome.refused[rule].any() for rule in rules):
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, nothing
    slots = room(case.ask, case.shape, case.outcome.usable_but_for(rules))
    machine, domain = slots.grouping.machine[slots.rows], slots.grouping.domain[slots.rows]
    order = np.lexsort((-amount[machine], domain))
    start = starts(domain[order])
    enough = slots.counts[domain[order][start]] >= case.shape.machines
    start = start[enough]
    return machine[order].astype(np.int64), start, start + case.shape.machines - 1


def _round(size: int) -> int:
    unit = _GIB if size >= _GIB else _MIB
    return size // unit * unit
