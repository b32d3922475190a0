"""Sentences for what would start a run: one template for each code, from `WhatIf.as_data()` alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placement.phrases import TOLD_IN_FULL, and_list, cores, gib, gpu_names, plural, shortened
from placement.words import placement_sentence

Data = Mapping[str, Any]

_LEVELS = {"nvlink_domain": "one NVLink domain", "rack": "one rack", "fabric": "one fabric"}
_NETWORKS = {
    "any": "any network",
    "ethernet": "Ethernet only",
    "rdma": "InfiniBand or RoCE",
    "infiniband": "InfiniBand only",
    "nvlink": "NVLink only",
}
_SPLIT_MATTERS = frozenset({"fewer_gpus", "machines_free", "node_range", "min_per_machine"})
"""Codes beside which the number of GPUs on each machine is told."""


def what_if_sentence(data: Data) -> str:
    """ "Uncordon gpu-07: it would start on gpu-07 and gpu-09, one InfiniBand fabric"."""
    return f"{changes_words(data)}: it would start on {place_words(data)}"


def changes_words(data: Data) -> str:
    """What is to be done, as an order: "Uncordon gpu-07"; of two changes both."""
    first, *others = [change_words(change) for change in data["changes"]]
    return " and ".join([first, *(other[0].lower() + other[1:] for other in others)])


def change_words(change: Data) -> str:
    """One change, with its numbers."""
    text = _CHANGES[change["code"]](change["numbers"])
    return f"In group {change['group']}, {text[0].lower()}{text[1:]}" if change["group"] else text


def place_words(data: Data) -> str:
    """Where it would then be: machines and network, and what is worth knowing about them."""
    groups = data["placement"]["groups"]
    text = placement_sentence({"groups": [{**group, "chosen": group["machines"]} for group in groups]})
    if any(change["code"] in _SPLIT_MATTERS for change in data["changes"]):
        text += "; " + and_list([_split(group) for group in groups])
    used = [f"{gpu_names(one['gpus'])} of {one['machine']}" for group in groups for one in group["suspects"]]
    count = sum(len(one["gpus"]) for group in groups for one in group["suspects"])
    return f"{text}; uses {_some(used)}, suspect" if count else text


def _split(group: Data) -> str:
    name = f" in {group['group']}" if group["group"] else ""
    each = " on each" if group["shape"]["machines"] > 1 else ""
    return f"{plural(group['shape']['gpus'], 'GPU')}{each}{name}"


def _some(parts: Sequence[str]) -> str:
    """All of a few, of more the first two and a number."""
    return and_list(parts) if len(parts) <= TOLD_IN_FULL else shortened(parts)


def _machines(numbers: Data) -> str:
    return _some([target["machine"] for target in numbers["targets"]])


def _pools(names: Sequence[str]) -> str:
    return f"{'pool' if len(names) == 1 else 'pools'} {_some(names)}"


def _keep_within(numbers: Data) -> str:
    asked, instead = _LEVELS[numbers["asked"]], numbers["instead"]
    if instead is None:
        return f"Don't keep the workers within {asked}"
    return f"Keep the workers within {_LEVELS[instead]} instead of {asked}"


def _speed(numbers: Data) -> str:
    if numbers["instead"] is None:
        return f"Accept ports of any speed instead of at least {numbers['asked']} Gb/s"
    return f"Ask for at least {numbers['instead']} Gb/s instead of {numbers['asked']}"


def _model(numbers: Data) -> str:
    asked, instead = " or ".join(numbers["asked"]), " or ".join(numbers["instead"])
    return f"Ask for {instead} instead of {asked}" if instead else f"Accept any GPU model instead of {asked}"


def _gpu_memory(numbers: Data) -> str:
    asked = gib(numbers["asked"])
    if not numbers["instead"]:
        return f"Accept GPUs with any memory instead of at least {asked}"
    return f"Ask for at least {gib(numbers['instead'])} on each GPU instead of {asked}"


def _split_over(numbers: Data) -> str:
    machines, gpus = plural(numbers["instead"], "machine"), plural(numbers["gpus"], "GPU")
    return f"Ask for {machines} with {gpus}{_each(numbers['instead'])} instead of {numbers['asked']}"


def _each(machines: int) -> str:
    return " each" if machines > 1 else ""


def _range(ends: Sequence[int | None]) -> str:
    low, high = ends
    if low is None:
        return f"at most {plural(high or 0, 'machine')}"
    return f"{low} to {plural(high, 'machine')}" if high else f"at least {plural(low, 'machine')}"


def _cpu(numbers: Data) -> str:
    amount = f"{cores(numbers['instead'])} {_with_what(numbers)}"
    return f"Ask for {amount} instead of {cores(numbers['asked'], unit=False)}"


def _memory(numbers: Data) -> str:
    return f"Ask for {gib(numbers['instead'])} of memory {_with_what(numbers)} instead of {gib(numbers['asked'])}"


def _with_what(numbers: Data) -> str:
    return "with each GPU" if numbers["per_gpu"] else "for each worker"


def _fixed(numbers: Data) -> str:
    amounts = f"{cores(numbers['cpu_millicores'])} and {gib(numbers['memory_bytes'])} of memory"
    return f"Ask for {amounts} for each worker instead of the GPUs' share"


def _fewer_machines(numbers: Data) -> str:
    if not numbers["gpus"]:
        return f"Ask for {plural(numbers['instead'], 'machine')} instead of {numbers['asked']}"
    fewer = f"{plural(numbers['instead'], 'machine')} and {plural(numbers['gpus'], 'GPU')}"
    return f"Ask for {fewer} instead of {numbers['asked']} and {numbers['asked_gpus']}"


def _named(numbers: Data) -> str:
    return f"Allow other machines than {_some(numbers['asked'])}"


def _agents(numbers: Data) -> str:
    return f"Update the {'agent' if len(numbers['targets']) == 1 else 'agents'} of {_machines(numbers)}"


def _of_machines(numbers: Data) -> str:
    return _some([f"{gpu_names(target['gpus'])} of {target['machine']}" for target in numbers["targets"]])


def _suspects(numbers: Data) -> str:
    one = sum(len(target["gpus"]) for target in numbers["targets"]) == 1
    return f"Check {_of_machines(numbers)} and clear {'its warning' if one else 'their warnings'}"


def _ports(numbers: Data) -> str:
    ports = [
        f"port {target['port'].partition(':')[0]} of {target['machine']}" for target in numbers["targets"]
    ]
    return f"Bring {_some(ports)} up"


def _label(what: str, condition: str) -> Callable[[Data], str]:
    def text(numbers: Data) -> str:
        by_value: dict[str, list[str]] = {}
        for target in numbers["targets"]:
            by_value.setdefault(target["value"], []).append(target["machine"])
        parts = [f"{_some(machines)} to {value}" for value, machines in by_value.items()]
        many = len(numbers["targets"]) > 1
        return f"Set the {what} of {and_list(parts)}, if {'they are' if many else 'it is'} {condition}"

    return text


def _reserved(numbers: Data) -> str:
    verb = "is" if len(numbers["machines"]) == 1 else "are"
    return f"Wait for the run that {_some(numbers['machines'])} {verb} reserved for"


def _runs(numbers: Data) -> str:
    told = [f"{run['name']} ({_loss(run)})" for run in numbers["runs"]]
    return f"Stop {and_list(told)} or wait for {'it' if len(told) == 1 else 'them'} to end"


def _loss(run: Data) -> str:
    return plural(run["gpus"], "GPU") + (", preemptible" if run["preemptible"] else "")


_CHANGES: Mapping[str, Callable[[Data], str]] = {
    "exclude_fewer": lambda n: f"Allow {_some(n['machines'])}, left out by the request",
    "other_pool": lambda n: f"Allow pool {n['pool']} too",
    "any_pool": lambda n: f"Allow all pools open to this workspace instead of {_pools(n['asked'])} only",
    "any_machine": _named,
    "fewer_labels": lambda n: f"Don't ask for the label {and_list(n['labels'])}",
    "healthy_only_off": lambda _: "Let GPUs with a warning sign be used too",
    "keep_within": _keep_within,
    "spread_off": lambda n: f"Let workers share a {n['asked']}",
    "interconnect": lambda n: f"Accept {_NETWORKS[n['instead']]} instead of {_NETWORKS[n['asked']]}",
    "min_gbps": _speed,
    "other_model": _model,
    "gpu_memory": _gpu_memory,
    "machines": _split_over,
    "machines_free": lambda n: f"Let Astraeus choose the number of machines instead of {n['asked']}",
    "node_range": lambda n: f"Allow {_range(n['instead'])} instead of {_range(n['asked'])}",
    "min_per_machine": lambda n: (
        f"Accept {plural(n['instead'], 'GPU')} on one machine instead of at least {n['asked']}"
    ),
    "less_cpu": _cpu,
    "less_memory": _memory,
    "fixed_amounts": _fixed,
    "fewer_gpus": lambda n: f"Ask for {plural(n['instead'], 'GPU')} instead of {n['asked']}",
    "fewer_machines": _fewer_machines,
    "preemptible": lambda n: f"Make the run preemptible, so that it may borrow from {_pools(n['pools'])}",
    "uncordon": lambda n: f"Uncordon {_machines(n)}",
    "undrain": lambda n: f"Stop draining {_machines(n)}",
    "set_fabric": _label("fabric", "on it"),
    "set_rack": _label("rack", "there"),
    "set_nvlink_domain": _label("NVLink domain", "in it"),
    "raise_cap": lambda n: f"Raise this workspace's cap in {_pools(n['pools'])}",
    "end_quarantine": lambda n: f"End the quarantine of {_machines(n)}",
    "stop_copy": lambda n: f"Stop the second agent of {_machines(n)}",
    "update_agent": _agents,
    "bring_back": lambda n: f"Bring {_machines(n)} back",
    "clear_suspect": _suspects,
    "bring_port_up": _ports,
    "repair_gpu": lambda n: f"Repair or replace {_of_machines(n)}",
    "wait_reserved": _reserved,
    "end_run": _runs,
}
"""Code → sentence from the change's numbers."""
