"""What `requested_resources` may not say although each of its fields is right by itself."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from wire.gpu_models import matches, short_model
from wire.names import shown
from wire.spec.shapes import MAX_GPUS, Shape, candidate_shapes, default_max_nodes
from wire.spec.tree import Problem
from wire.spec.view import Node, Rule


class Request(NamedTuple):
    """The numbers that decide over how many machines a group can be split."""

    gpus: int
    machines: int | None
    min_nodes: int | None
    max_nodes: int | None

    @classmethod
    def of(cls, resources: Node) -> "Request":
        """Raises Unknown when one of the numbers is broken."""
        gpus = resources.node("gpu_requests").value("count") if resources.has("gpu_requests") else 0
        topology = resources.node("topology")
        return cls(
            gpus, resources.value("machines"), topology.value("min_nodes"), topology.value("max_nodes")
        )

    @property
    def has_range(self) -> bool:
        return self.min_nodes is not None or self.max_nodes is not None

    @property
    def range(self) -> range:
        return range(self.min_nodes or 1, (self.max_nodes or default_max_nodes(self.gpus)) + 1)

    @property
    def is_contradictory(self) -> bool:
        """Another rule speaks about the numbers themselves; counting on would only repeat it."""
        return self.has_range and (self.machines is not None or not self.range)

    def shapes(self, min_per_machine: int = 1) -> tuple[Shape, ...]:
        return candidate_shapes(
            self.gpus,
            machines=self.machines,
            min_nodes=self.min_nodes,
            max_nodes=self.max_nodes,
            min_per_machine=min_per_machine,
        )


def gpus_in_words(count: int) -> str:
    """`1 GPU`, `16 GPUs`."""
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def machines_in_words(count: int) -> str:
    """`1 machine`, `2 machines`."""
    return f"{count} machine" if count == 1 else f"{count} machines"


def even_split(resources: Node) -> Iterator[Problem]:
    """The GPUs must split evenly over the machines asked for."""
    request = Request.of(resources)
    if not request.gpus or request.is_contradictory or request.shapes():
        return
    place = resources.at("gpu_requests", "count")
    if request.machines is not None:
        over = machines_in_words(request.machines)
        code, numbers = "not_divisible", range(request.machines, request.machines + 1)
    else:
        numbers = request.range
        code, over = "no_divisor_in_range", _range_in_words(numbers)
    use = " or ".join(str(count) for count in _nearest_counts(request.gpus, numbers))
    yield Problem(place, code, f"{gpus_in_words(request.gpus)} can't be split evenly over {over}. Use {use}.")


def _range_in_words(numbers: range) -> str:
    first, last = numbers[0], numbers[-1]
    return machines_in_words(first) if first == last else f"{first} to {last} machines"


def _nearest_counts(gpus: int, numbers: Iterable[int]) -> list[int]:
    """The nearest counts below and above `gpus` that one of `numbers` divides."""
    below = max(gpus - gpus % number for number in numbers)
    above = min(gpus - gpus % number + number for number in numbers)
    return [count for count in (below, above) if 1 <= count <= MAX_GPUS]


def reachable_slice(resources: Node) -> Iterator[Problem]:
    """`min_per_machine` must be left by some split."""
    request = Request.of(resources)
    least = resources.node("gpu_requests").value("min_per_machine")
    if least is None or request.is_contradictory:
        return
    shapes = request.shapes()
    if not shapes or request.shapes(least):
        return
    best = max(shape.gpus_per_machine for shape in shapes)
    yield Problem(
        resources.at("gpu_requests", "min_per_machine"),
        "min_per_machine_unreachable",
        f"No allowed split of {gpus_in_words(request.gpus)} leaves {least} on one machine. Use at most "
        f"{best}.",
    )


def machines_or_range(resources: Node) -> Iterator[Problem]:
    """An exact number and a range exclude each other."""
    if resources.has("machines") and resources.node("topology").has("min_nodes", "max_nodes"):
        yield Problem(
            resources.at("machines"),
            "machines_and_range",
            "Give either `machines` or `topology.min_nodes`/`max_nodes`, not both.",
        )


def ordered_range(resources: Node) -> Iterator[Problem]:
    """The range must hold a number."""
    topology = resources.node("topology")
    least, most = topology.value("min_nodes"), topology.value("max_nodes")
    if least is not None and most is not None and least > most:
        yield Problem(
            topology.at("min_nodes"),
            "empty_range",
            f"`min_nodes` {least} is more than `max_nodes` {most}. Swap them.",
        )


def closed_range(resources: Node) -> Iterator[Problem]:
    """Where nothing else bounds the machines above, `max_nodes` must."""
    request = Request.of(resources)
    if request.min_nodes is None or request.max_nodes is not None:
        return
    place = resources.at("topology", "max_nodes")
    if not request.gpus:
        yield Problem(
            place, "missing", "`max_nodes` is missing. Without GPUs a range needs both of its ends."
        )
    elif request.min_nodes > default_max_nodes(request.gpus):
        yield Problem(
            resources.at("topology", "min_nodes"),
            "no_divisor_in_range",
            f"{gpus_in_words(request.gpus)} can't be split over {request.min_nodes} or more machines. "
            f"Use at most {default_max_nodes(request.gpus)}.",
        )


def one_kind_of_amounts(resources: Node) -> Iterator[Problem]:
    """Per GPU or per worker, never both."""
    if resources.has("per_gpu") and resources.has("cpu_cores", "memory_bytes"):
        yield Problem(
            resources.at("per_gpu"),
            "both_amounts",
            "Give either `per_gpu` (for each GPU) or `cpu_cores` and `memory_bytes` (for each worker), not "
            "both.",
        )


def amounts_per_gpu_need_gpus(resources: Node) -> Iterator[Problem]:
    """Nothing times no GPU is nothing."""
    if resources.has("per_gpu") and not resources.has("gpu_requests"):
        yield Problem(
            resources.at("per_gpu"),
            "per_gpu_without_gpus",
            "`per_gpu` needs `gpu_requests`. Without GPUs give `cpu_cores` and `memory_bytes`.",
        )


def both_amounts_with_gpus(resources: Node) -> Iterator[Problem]:
    """On a GPU machine half a share is no share: cores and memory are both given, or neither."""
    given = [name for name in ("cpu_cores", "memory_bytes") if resources.has(name)]
    if len(given) == 1 and resources.has("gpu_requests") and not resources.has("per_gpu"):
        other = "memory_bytes" if given == ["cpu_cores"] else "cpu_cores"
        yield Problem(
            resources.at(other),
            "missing",
            f"`{other}` is missing. With GPUs give both `cpu_cores` and `memory_bytes`, or neither for the "
            f"GPUs' share.",
        )


def speed_needs_rdma(resources: Node) -> Iterator[Problem]:
    """`min_gbps` is about RDMA ports."""
    network = resources.node("network")
    interconnect = network.value("interconnect")
    if network.has("min_gbps") and interconnect in ("ethernet", "nvlink"):
        yield Problem(
            network.at("min_gbps"),
            "min_gbps_without_rdma",
            f"`min_gbps` is the speed of RDMA ports, and `{interconnect}` uses none. Leave it out, or ask "
            f"for `rdma` or "
            "`infiniband`.",
        )


def nvlink_needs_gpus(resources: Node) -> Iterator[Problem]:
    """NVLink joins GPUs."""
    network = resources.node("network")
    if network.value("interconnect") == "nvlink" and not resources.has("gpu_requests"):
        yield Problem(
            network.at("interconnect"),
            "nvlink_without_gpus",
            "`nvlink` needs `gpu_requests`: NVLink joins GPUs.",
        )


# An NVLink domain lies inside one rack and on one fabric. A rack may have machines of several fabrics.
_CONTRADICTIONS: Final = {
    ("rack", "rack"): "All workers in one rack and each in another rack",
    ("fabric", "fabric"): "All workers on one fabric and each on another fabric",
    ("nvlink_domain", "rack"): "All workers in one NVLink domain, so in one rack, and each in another rack",
    (
        "nvlink_domain",
        "fabric",
    ): "All workers in one NVLink domain, so on one fabric, and each on another fabric",
}


def spread_fits_keep_within(resources: Node) -> Iterator[Problem]:
    """Together and apart on the same level is impossible."""
    topology = resources.node("topology")
    pair = (topology.value("keep_within"), topology.value("spread"))
    if reason := _CONTRADICTIONS.get(pair):
        yield Problem(
            topology.at("spread"),
            "spread_contradicts_keep_within",
            f"{reason}: that is impossible. Leave out `spread` or `keep_within`.",
        )


def spread_fits_interconnect(resources: Node) -> Iterator[Problem]:
    """Several machines on one InfiniBand fabric are not each on another fabric."""
    spread = resources.node("topology").value("spread")
    interconnect = resources.node("network").value("interconnect")
    if spread != "fabric" or interconnect != "infiniband":
        return
    shapes = Request.of(resources).shapes()
    if shapes and all(shape.machines > 1 for shape in shapes):
        yield Problem(
            resources.at("topology", "spread"),
            "spread_contradicts_interconnect",
            "`infiniband` puts all workers on one fabric, `spread` each on another. Leave out one of the "
            "two.",
        )


_LIST_OF_MODE: Final = {"Pools": "pools", "Machines": "machines", "Labels": "match_labels"}


def selection_is_used(resources: Node) -> Iterator[Problem]:
    """The list that the mode reads must have entries; the others must be empty."""
    selection = resources.node("node_selection")
    mode = selection.value("mode", "Any")
    for wanted, name in _LIST_OF_MODE.items():
        entries = selection.value(name, [])
        if wanted == mode and not entries:
            yield Problem(
                selection.at(name),
                "missing",
                f"`{name}` is missing. With mode `{mode}` give at least one entry.",
            )
        if wanted != mode and entries:
            yield Problem(
                selection.at(name),
                "selection_unused",
                f"`{name}` counts with mode `{wanted}` only, and the mode is `{mode}`. Set `mode` to "
                f"`{wanted}`, or leave "
                f"`{name}` out.",
            )


def models_are_short_names(resources: Node) -> Iterator[Problem]:
    """A product's full name would match nothing, and the run would wait for ever."""
    for index, model in resources.node("gpu_requests").items("models"):
        short = short_model(model)
        if matches(model, short):
            continue
        memory = (
            " For its memory use `min_memory_bytes`."
            if re.search(r"[0-9] ?GB?\b", model, re.IGNORECASE)
            else ""
        )
        yield Problem(
            resources.at("gpu_requests", "models", index),
            "not_a_short_name",
            f"{shown(model)} is more than the product's short name. Write {shown(short)}.{memory}",
        )


def enough_machines_named(resources: Node) -> Iterator[Problem]:
    """One worker a machine: those named, less those left out, must be enough."""
    selection = resources.node("node_selection")
    named = set(selection.value("machines", []))
    if selection.value("mode") != "Machines" or not named:
        return
    left = sorted(named - set(selection.value("exclude_machines", [])))
    request = Request.of(resources)
    needed = request.machines or request.min_nodes or 1
    if len(left) < needed:
        names = f" ({', '.join(shown(name) for name in left)})" if left else ""
        yield Problem(
            selection.at("machines"),
            "too_few_machines",
            f"{machines_in_words(needed)} {'is' if needed == 1 else 'are'} needed, and {len(left)} of those "
            f"named may be "
            f"used{names}. Name more, or ask for fewer.",
        )


RESOURCE_RULES: Final[tuple[Rule, ...]] = (
    even_split,
    reachable_slice,
    machines_or_range,
    ordered_range,
    closed_range,
    one_kind_of_amounts,
    amounts_per_gpu_need_gpus,
    both_amounts_with_gpus,
    speed_needs_rdma,
    nvlink_needs_gpus,
    spread_fits_keep_within,
    spread_fits_interconnect,
    models_are_short_names,
    selection_is_used,
    enough_machines_named,
)
