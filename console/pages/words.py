"""Sentences of the pages that belong to no reason: a request in words, counts, GPU numbers."""

from collections.abc import Container, Iterable, Sequence
from typing import Protocol

from machines.states import Health
from placement.phrases import plural
from wire.gpu_models import short_model
from wire.quantities import format_size
from wire.spec import Group, RequestedResources, RunDocument

EN_DASH = "\u2013"
TIMES = "\u00d7"
INTERCONNECTS = {
    "ethernet": "Ethernet",
    "rdma": "InfiniBand or RoCE",
    "infiniband": "InfiniBand",
    "nvlink": "NVLink",
}
WITHIN = {"nvlink_domain": "one NVLink domain", "rack": "one rack", "fabric": "one fabric"}


class SomeGpu(Protocol):
    """A GPU's row, or a few of its columns."""

    @property
    def id(self) -> int: ...
    @property
    def health(self) -> str: ...
    @property
    def model(self) -> str: ...


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in order; neighbours are joined to a range."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}{EN_DASH}{last}" for first, last in spans)


def gpus_words(indices: list[int]) -> str:
    """`GPUs 0, 3`, `GPU 3`; empty without any."""
    if not indices:
        return ""
    return f"GPU{'s' if len(indices) > 1 else ''} {ranges(indices)}"


def gpus_asked(document: RunDocument) -> int:
    """GPUs of the whole run."""
    return sum(group.template.requested_resources.gpu_count for group in document.groups())


def request_words(document: RunDocument) -> list[str]:
    """The request in the form's words, a part each: `16 GPUs`, `exactly 2 machines`, `H100`, …"""
    groups = document.groups()
    if len(groups) == 1:
        return _group_words(groups[0])
    asked = gpus_asked(document)
    return [*([plural(asked, "GPU")] if asked else []), *(_group_line(group) for group in groups)]


def _group_line(group: Group) -> str:
    return f"{group.name}: {', '.join(_group_words(group))}"


def _group_words(group: Group) -> list[str]:
    wanted = group.template.requested_resources
    parts = [
        plural(wanted.gpu_count, "GPU") if wanted.gpu_count else "no GPU",
        _machines(wanted),
        _models(wanted),
        _network(wanted),
        WITHIN.get(wanted.topology.keep_within or "", ""),
        f"each in another {wanted.topology.spread}" if wanted.topology.spread else "",
        _amounts(wanted),
    ]
    return [part for part in parts if part]


def _machines(wanted: RequestedResources) -> str:
    if wanted.machines is not None:
        return f"exactly {plural(wanted.machines, 'machine')}"
    low, high = wanted.topology.min_nodes, wanted.topology.max_nodes
    if low is not None or high is not None:
        return f"{low or 1} to {high} machines"
    return "Astraeus chooses the machines" if wanted.gpu_count > 1 else ""


def _models(wanted: RequestedResources) -> str:
    gpus = wanted.gpu_requests
    if gpus is None:
        return ""
    models = " or ".join(short_model(model) for model in gpus.models)
    healthy = "only healthy GPUs" if gpus.healthy_only else ""
    return ", ".join(filter(None, [models, healthy]))


def _network(wanted: RequestedResources) -> str:
    name = INTERCONNECTS.get(wanted.network.interconnect, "")
    speed = f"at least {wanted.network.min_gbps} Gb/s" if wanted.network.min_gbps else ""
    return ", ".join(filter(None, [name, speed]))


def _amounts(wanted: RequestedResources) -> str:
    if wanted.per_gpu is not None:
        each = wanted.per_gpu
        return f"{plural(each.cpu_cores, 'core')} and {format_size(each.memory_bytes)} with each GPU"
    amounts = wanted.amounts(wanted.shapes()[0])
    if amounts is None:
        return ""
    return f"{plural(amounts[0], 'core')} and {format_size(amounts[1])} each"


def gpus_free(gpus: Iterable[SomeGpu], held: Container[int]) -> int:
    """How many are neither held nor faulty."""
    return sum(gpu.id not in held and gpu.health != Health.FAULTY for gpu in gpus)


def gpu_counts(gpus: Sequence[SomeGpu], held: frozenset[int]) -> str:
    """`3 of 8 free, 1 suspect`: what a machine's GPUs are doing."""
    if not gpus:
        return "no GPUs"
    parts = [f"{gpus_free(gpus, held)} of {len(gpus)} free"]
    counts = {health: sum(gpu.health == health for gpu in gpus) for health in (Health.SUSPECT, Health.FAULTY)}
    parts.extend(f"{count} {health.value}" for health, count in counts.items() if count)
    return ", ".join(parts)
