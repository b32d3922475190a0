"""Changes to what the run asks of GPUs, network and topology.

Each function tries its changes, the smallest first, and gives the offers that hold.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from placement.arrays import Ints
from placement.ask import Ask
from placement.request import Interconnect, Level
from placement.whatif.bench import Bench, Case
from placement.whatif.changes import Code, WhatIf

Variants = Callable[[Bench, Case], Iterator[WhatIf]]

_WIDER: dict[Level, tuple[Level | None, ...]] = {
    "nvlink_domain": ("rack", "fabric", None),
    "rack": ("fabric", None),
    "fabric": (None,),
}
_OPENER: dict[Interconnect, tuple[Interconnect, ...]] = {
    "infiniband": ("rdma", "any"),
    "rdma": ("any",),
    "nvlink": ("any",),
    "ethernet": ("any",),
}
_MOST_MODELS = 12
"""Models tried one by one, in the order of their names."""


def first(offers: Iterable[WhatIf | None]) -> Iterator[WhatIf]:
    """The first change of a ladder that helps: those after it give up more than is needed."""
    for offer in offers:
        if offer is not None:
            yield offer
            return


def healthy_only(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """GPUs with a warning sign may be used too, last."""
    if case.group.healthy_only and case.group.gpus:
        change = case.change(Code.HEALTHY_ONLY_OFF, {}, {"gpu_requests": {"healthy_only": False}})
        yield from first([bench.attempt(case, change, request=case.request_with(healthy_only=False))])


def keep_within(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """A wider level, at last none."""
    asked = case.group.keep_within
    for_level = (_try_level(bench, case, asked, level) for level in (_WIDER[asked] if asked else ()))
    yield from first(for_level)


def _try_level(bench: Bench, case: Case, asked: Level | None, level: Level | None) -> WhatIf | None:
    if level is not None and level == case.group.spread:
        return None  # Together and apart on one level is no document.
    change = case.change(
        Code.KEEP_WITHIN, {"asked": asked, "instead": level}, {"topology": {"keep_within": level}}
    )
    return bench.attempt(case, change, request=case.request_with(keep_within=level))


def spread(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Workers may share a rack or a fabric."""
    if case.group.spread in ("rack", "fabric"):
        change = case.change(Code.SPREAD_OFF, {"asked": case.group.spread}, {"topology": {"spread": None}})
        yield from first([bench.attempt(case, change, request=case.request_with(spread=None))])


def interconnect(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """More kinds of network."""
    asked = case.group.interconnect
    yield from first(_try_interconnect(bench, case, kind) for kind in _OPENER.get(asked, ()))


def _try_interconnect(bench: Bench, case: Case, kind: Interconnect) -> WhatIf | None:
    numbers = {"asked": case.group.interconnect, "instead": kind}
    change = case.change(Code.INTERCONNECT, numbers, {"network": {"interconnect": kind}})
    return bench.attempt(case, change, request=case.request_with(interconnect=kind))


def speed(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Slower ports: each lower speed that some port of this cluster has, at last any."""
    asked = case.group.min_gbps
    if not asked or not case.ask.kinds:
        return
    lower = [gbps for gbps in _speeds(case.ask)[::-1].tolist() if gbps < asked]
    yield from first(_try_speed(bench, case, gbps or None) for gbps in lower)


def _speeds(ask: Ask) -> Ints:
    """The speeds that ports of the kinds asked for have, ascending."""
    ports = ask.topology.ports

    def make() -> Ints:
        return np.unique(ports.gbps[np.isin(ports.link, ask.kinds)])

    return ask.topology.remember(("speeds", ask.kinds), make)


def _try_speed(bench: Bench, case: Case, gbps: int | None) -> WhatIf | None:
    numbers = {"asked": case.group.min_gbps, "instead": gbps}
    change = case.change(Code.MIN_GBPS, numbers, {"network": {"min_gbps": gbps}})
    return bench.attempt(case, change, request=case.request_with(min_gbps=gbps))


def models(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Each other model of this cluster; any model only where no single one is enough."""
    asked = case.group.models
    if not asked:
        return
    helped = False
    others = [model for model in case.ask.topology.models if model not in asked]
    for model in others[:_MOST_MODELS]:
        for offer in first([_try_models(bench, case, [model])]):
            helped = True
            yield offer
    if not helped and others:
        yield from first([_try_models(bench, case, [])])


def _try_models(bench: Bench, case: Case, models: list[str]) -> WhatIf | None:
    numbers = {"asked": sorted(case.group.models), "instead": models}
    change = case.change(Code.OTHER_MODEL, numbers, {"gpu_requests": {"models": models}})
    return bench.attempt(case, change, request=case.request_with(models=frozenset(models)))


def gpu_memory(bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Smaller GPUs: each lower size that some GPU of this cluster has."""
    asked = case.group.min_memory_bytes
    topology = case.ask.topology
    every = [topology.gpu_memory_min, topology.gpu_memory[topology.mixed].reshape(-1)]
    sizes = np.unique(np.concatenate(every))[::-1].tolist() if asked else []
    yield from first(_try_memory(bench, case, size) for size in sizes if size < asked)


def _try_memory(bench: Bench, case: Case, size: int) -> WhatIf | None:
    numbers = {"asked": case.group.min_memory_bytes, "instead": size}
    change = case.change(Code.GPU_MEMORY, numbers, {"gpu_requests": {"min_memory_bytes": size or None}})
    return bench.attempt(case, change, request=case.request_with(min_memory_bytes=size))
