"""Would the cluster hold this run if it were empty, healthy and ready? If not: which number would have to change."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from placement.outcome import Placement, Refusal
from placement.place import fits, place
from placement.request import GroupRequest, Level, Request, Selection
from placement.rules import Rule
from placement.snapshot import Snapshot

_LOOSER: dict[Level, tuple[Level | None, ...]] = {
    "nvlink_domain": ("rack", "fabric", None),
    "rack": ("fabric", None),
    "fabric": (None,),
}


@dataclass(frozen=True, slots=True)
class Change:
    """One field of the request that, changed alone (GPUs with machines), makes the run possible on this cluster."""

    field: str
    asked: Any
    would_fit: Any


@dataclass(frozen=True, slots=True)
class Impossible:
    """No set of machines of this cluster could hold the run, whatever ends or is repaired."""

    refusal: Refusal
    changes: tuple[Change, ...]
    """Tried one by one on the empty cluster; the value nearest to what was asked."""

    def as_data(self) -> dict[str, Any]:
        """The refusal's data, with the changes."""
        return {**self.refusal.as_data(), "kind": "impossible", "changes": self.changes_data()}

    def changes_data(self) -> list[dict[str, Any]]:
        """The changes, JSON-serialisable."""
        return [
            {"field": change.field, "asked": change.asked, "would_fit": change.would_fit}
            for change in self.changes
        ]


def possible_ever(snapshot: Snapshot, request: Request) -> Placement | Impossible:
    """The placement that the empty, healthy, ready cluster would give, or why even that holds no such run."""
    empty = snapshot.emptied(repaired=True)
    lasting = Request(request.groups, request.allowed_pools)
    answer = place(empty, lasting)
    if isinstance(answer, Placement):
        return answer
    refusal = replace(answer, even_when_free=True)
    return Impossible(refusal, tuple(_changes(empty, lasting, refusal)))


@dataclass(frozen=True, slots=True)
class _Case:
    """What was refused, and the group that it was refused for."""

    refusal: Refusal
    group: GroupRequest


def _changes(empty: Snapshot, request: Request, refusal: Refusal) -> Iterator[Change]:
    """For each field that could be the one in the way, the first value that helps."""
    index = refusal.group
    for variants in _VARIANTS:
        for change, group in variants(_Case(refusal, request.groups[index])):
            groups = (*request.groups[:index], group, *request.groups[index + 1 :])
            if fits(empty, replace(request, groups=groups)):
                yield change
                break


_Variants = Iterator[tuple[Change, GroupRequest]]


def _fewer_machines(case: _Case) -> _Variants:
    """As many machines as the best domain has, each with as many GPUs as asked."""
    room = int(case.refusal.slots.counts.max(initial=0))
    if not 0 < room < case.refusal.shape.machines or case.group.machines is None:
        return
    if case.group.gpus == 0:
        yield Change("machines", case.group.machines, room), replace(case.group, machines=room)
        return
    gpus = room * case.refusal.shape.gpus
    asked, fits = {"machines": case.group.machines, "gpus": case.group.gpus}, {"machines": room, "gpus": gpus}
    yield Change("machines", asked, fits), replace(case.group, machines=room, gpus=gpus)


def _fewer_gpus(case: _Case) -> _Variants:
    """Fewer GPUs, on as many machines where their number is fixed."""
    step = case.group.machines or 1
    most = int(case.refusal.outcome.ask.topology.gpus_total.sum())
    start = min(case.group.gpus - step, most // step * step)
    for gpus in _few(range(start, 0, -step)):
        yield Change("gpu_requests.count", case.group.gpus, gpus), replace(case.group, gpus=gpus)


def _more_machines(case: _Case) -> _Variants:
    """The same GPUs in smaller slices."""
    if case.group.machines is None or case.group.gpus == 0:
        return
    for machines in range(case.group.machines + 1, case.group.gpus + 1):
        if case.group.gpus % machines == 0:
            yield Change("machines", case.group.machines, machines), replace(case.group, machines=machines)


def _any_model(case: _Case) -> _Variants:
    for model in case.refusal.outcome.ask.topology.models if case.group.models else ():
        yield (
            Change("gpu_requests.models", sorted(case.group.models), [model]),
            replace(case.group, models=frozenset([model])),
        )


def _gpu_memory(case: _Case) -> _Variants:
    sizes = np.unique(case.refusal.outcome.ask.topology.gpu_memory).tolist()
    for size in _smaller(sizes, case.group.min_memory_bytes):
        yield (
            Change("gpu_requests.min_memory_bytes", case.group.min_memory_bytes, size),
            replace(case.group, min_memory_bytes=size),
        )


def _speed(case: _Case) -> _Variants:
    speeds = np.unique(case.refusal.outcome.ask.topology.ports.gbps).tolist()
    for speed in _smaller(speeds, case.group.min_gbps or 0):
        yield (
            Change("network.min_gbps", case.group.min_gbps, speed),
            replace(case.group, min_gbps=speed or None),
        )


def _level(case: _Case) -> _Variants:
    for level in _LOOSER[case.group.keep_within] if case.group.keep_within else ():
        yield (
            Change("topology.keep_within", case.group.keep_within, level),
            replace(case.group, keep_within=level),
        )


def _spread(case: _Case) -> _Variants:
    if case.group.spread in ("rack", "fabric"):
        yield Change("topology.spread", case.group.spread, None), replace(case.group, spread=None)


def _interconnect(case: _Case) -> _Variants:
    if case.group.interconnect == "infiniband":
        yield (
            Change("network.interconnect", "infiniband", "rdma"),
            replace(case.group, interconnect="rdma"),
        )
    if case.group.interconnect != "any":
        yield (
            Change("network.interconnect", case.group.interconnect, "any"),
            replace(case.group, interconnect="any"),
        )


def _selection(case: _Case) -> _Variants:
    if case.group.selection != Selection():
        yield Change("node_selection", "as asked", "Any"), replace(case.group, selection=Selection())


def _cpu(case: _Case) -> _Variants:
    """The most cores that enough machines have."""
    free = case.refusal.outcome.ask.snapshot.cpu_free
    for most in _offers(case.refusal, Rule.CPU_SHORT, free):
        if case.group.cpu_millicores is not None:
            yield (
                Change("cpu_millicores", case.group.cpu_millicores, most),
                replace(case.group, cpu_millicores=most),
            )
        elif case.group.cpu_millicores_per_gpu is not None:
            each = most // max(case.refusal.shape.gpus, 1)
            yield (
                Change("per_gpu.cpu_millicores", case.group.cpu_millicores_per_gpu, each),
                replace(case.group, cpu_millicores_per_gpu=each),
            )


def _memory(case: _Case) -> _Variants:
    free = case.refusal.outcome.ask.snapshot.memory_free
    for most in _offers(case.refusal, Rule.MEMORY_SHORT, free):
        if case.group.memory_bytes is not None:
            yield (
                Change("memory_bytes", case.group.memory_bytes, most),
                replace(case.group, memory_bytes=most),
            )
        elif case.group.memory_bytes_per_gpu is not None:
            each = most // max(case.refusal.shape.gpus, 1)
            yield (
                Change("per_gpu.memory_bytes", case.group.memory_bytes_per_gpu, each),
                replace(case.group, memory_bytes_per_gpu=each),
            )


def _offers(refusal: Refusal, rule: Rule, free: np.ndarray) -> Iterable[int]:
    """What machines refused by this rule alone or by none have of it, largest first, from where there are enough."""
    bits = refusal.outcome.bits
    amounts = np.sort(free[(bits & ~np.uint64(rule.bit)) == 0])[::-1]
    if not (bits == rule.bit).any():
        return ()
    enough = amounts[refusal.shape.machines - 1 :]
    return _few([int(amount) for amount in np.unique(enough)[::-1] if amount > 0])


_MOST_TRIES = 16


def _few(values: "Iterable[int]") -> Iterator[int]:
    """The first values only: nearest to what was asked, and the answer stays quick."""
    for number, value in enumerate(values):
        if number == _MOST_TRIES:
            return
        yield value


def _smaller(values: Iterable[int], asked: int) -> Iterator[int]:
    return _few(value for value in sorted(values, reverse=True) if value < asked)


_VARIANTS: tuple[Callable[[_Case], _Variants], ...] = (
    _fewer_machines,
    _fewer_gpus,
    _more_machines,
    _any_model,
    _gpu_memory,
    _cpu,
    _memory,
    _speed,
    _level,
    _spread,
    _interconnect,
    _selection,
)
