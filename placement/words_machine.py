"""One machine's row in words.

One rule, one code, one sentence template: `_FIXED`, `_COUNTED`, `_COMPARED`. Who holds what is missing is known to the
caller, who passes names.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from placement.phrases import and_list, capitalized, cores, gib, gpu_names, gpus_free, plural

Data = Mapping[str, Any]

GROUP_TITLES: Mapping[str, str] = {
    "": "Ready for this run",
    "pool_not_allowed": "Pool not open to this workspace",
    "not_in_pools": "Another pool",
    "not_named": "Not among the machines named",
    "label_missing": "Label missing",
    "excluded": "Left out by the request",
    "same_run": "Already has a worker of this run",
    "no_gpus": "No GPUs",
    "other_model": "Another model",
    "gpu_memory": "GPU memory too small",
    "too_few_gpus": "Too few GPUs",
    "drive_missing": "Drive missing",
    "no_rdma_port": "No RDMA port",
    "port_no_fabric": "Fabric not known",
    "no_nvlink_domain": "In no NVLink domain",
    "no_fabric": "On no fabric",
    "no_rack": "Rack not known",
    "port_down": "Port down",
    "port_slow": "Port too slow",
    "quarantined": "Quarantined",
    "unreachable": "Unreachable",
    "contested": "Two agents",
    "not_ready": "Not ready",
    "gpus_faulty": "GPU faulty",
    "pool_cap": "Pool closed by this workspace's cap",
    "pool_guaranteed": "Guaranteed to other workspaces",
    "reserved": "Reserved for a run that goes first",
    "memory_short": "Too little free memory",
    "cpu_short": "Too few free cores",
    "gpus_busy": "Too few free GPUs",
    "gpus_suspect": "GPU not healthy",
    "stale_agent": "Old agent",
    "draining": "Draining",
    "cordoned": "Cordoned",
}
"""Short form of each code: the heading under which machines are listed. "" is for machines that no rule refuses."""

QUOTA_KEPT = "Kept for a run that goes first"
"""Instead of the heading of a pool's cap or guarantee."""


def _suspects(numbers: Data) -> str:
    ready = f"{numbers['healthy']} of {numbers['free']} free GPUs are healthy, {numbers['needed']} needed"
    marked = numbers["gpus"]
    told = f"{gpu_names(marked)} {'is' if len(marked) == 1 else 'are'} suspect{_signs(numbers)}"
    return f"{ready}; {told}" if marked else ready


def _faulty(numbers: Data) -> str:
    sound = numbers["total"] - numbers["faulty"]
    text = f"{sound} of {numbers['total']} GPUs are sound, {numbers['needed']} needed"
    marked = numbers["gpus"]
    told = f"{gpu_names(marked)} {'is' if len(marked) == 1 else 'are'} faulty{_signs(numbers)}"
    return f"{text}; {told}" if marked else text


def _signs(numbers: Data) -> str:
    return f": {numbers['signs']}" if numbers.get("signs") else ""


def _slow(numbers: Data) -> str:
    where = f" on {numbers['fabric']}" if numbers["fabric"] else ""
    speed = f"at {numbers['gbps']} Gb/s" if numbers["gbps"] > 0 else "of unknown speed"
    return f"{plural(numbers['ports'], 'port')}{where} {speed}, {numbers['needed']} needed"


def _down(numbers: Data) -> str:
    names = and_list([name.partition(":")[0] for name in numbers["ports"]])
    return f"{names} down" + (f"; before that {numbers['gbps']} Gb/s" if numbers["gbps"] > 0 else "")


def _model(numbers: Data, asked: Data) -> str:
    wanted = " or ".join(asked["models"])
    verb = "is" if len(asked["models"]) == 1 else "are"
    return f"{numbers['model'] or 'unknown model'}; {wanted} {verb} asked"


def _kept(numbers: Data) -> str:
    return f"{_pool(numbers)}: what quotas leave there is kept for {numbers['kept']}, which goes first"


def _cap(numbers: Data) -> str:
    if "kept" in numbers:
        return _kept(numbers)
    text = f"{_pool(numbers)}: this run would pass the cap of {numbers.get('workspace', 'its workspace')}"
    return f"{text}, {_in_use(numbers)}" if "cap" in numbers else text


def _guaranteed(numbers: Data) -> str:
    if "kept" in numbers:
        return _kept(numbers)
    text = f"{_pool(numbers)}: what is free there is guaranteed to other workspaces"
    return f"{text}, {_in_use(numbers)}" if "cap" in numbers else text


def _in_use(numbers: Data) -> str:
    return f"{numbers['used']:,} of {plural(numbers['cap'], 'GPU')} in use"


def _reserved(numbers: Data) -> str:
    text = f"reserved for {numbers.get('run', 'a run that goes first')}"
    return f"{text}, which starts {numbers['at']} at the latest" if "at" in numbers else text


def _cordoned(numbers: Data) -> str:
    who = f" by {numbers['by']}" if numbers.get("by") else ""
    when = f" {numbers['ago']} ago" if numbers.get("ago") else ""
    return f"cordoned{who}{when}" + (f": “{numbers['why']}”" if numbers.get("why") else "")


def _busy(numbers: Data) -> str:
    return f"{gpus_free(numbers['free'], numbers['total'])}, {numbers['needed']} needed"


_FIXED: Mapping[str, str] = {
    "not_named": "not among the machines that the request names",
    "excluded": "left out by the request",
    "same_run": "already has a worker of this run",
    "no_gpus": "no GPUs",
    "no_nvlink_domain": "in no NVLink domain",
    "no_fabric": "on no fabric that is known",
    "no_rack": "rack not known",
    "quarantined": "quarantined until an owner decides",
    "unreachable": "unreachable",
    "contested": "two agents use its credential, so nothing is started there",
    "not_ready": "not ready",
    "stale_agent": "its agent is too old",
    "draining": "draining, takes no new work",
}
"""Sentences without numbers."""

_COUNTED: Mapping[str, Callable[[Data], str]] = {
    "pool_not_allowed": lambda n: f"in {_pool(n)}, which this workspace may not use",
    "not_in_pools": lambda n: f"in {_pool(n)}, which the request leaves out",
    "label_missing": lambda n: f"without the label {and_list(n['labels'])}",
    "gpu_memory": lambda n: f"{gib(n['memory_bytes'])} on a GPU, {gib(n['needed_bytes'])} needed",
    "too_few_gpus": lambda n: f"has {plural(n['of_model'], 'GPU')}, {n['needed']} needed",
    "drive_missing": lambda n: f"cannot mount drive {and_list(n['drives'])}",
    "port_no_fabric": lambda n: f"{plural(n['ports'], 'port')}, none on a known compute fabric",
    "port_down": _down,
    "port_slow": _slow,
    "gpus_faulty": _faulty,
    "pool_cap": _cap,
    "pool_guaranteed": _guaranteed,
    "reserved": _reserved,
    "memory_short": lambda n: f"{gib(n['free'])} of memory free, {gib(n['needed'])} needed",
    "cpu_short": lambda n: f"{cores(n['free'])} free, {cores(n['needed'], unit=False)} needed",
    "gpus_busy": _busy,
    "gpus_suspect": _suspects,
    "cordoned": _cordoned,
}
"""Sentences from the reason's own numbers.

What policy and order know beyond the cluster is joined in by the caller, where it is to be told: `used` and `cap`
(GPUs) and `workspace` for a pool's cap and guarantee, `kept` (a run) where what they leave is kept for one, `run` and
`at` (a time in the reader's words) for a reservation, `by`, `ago` (a duration) and `why` for a cordon, `signs` (the
evidence) for GPUs that are suspect or faulty.
"""

_COMPARED: Mapping[str, Callable[[Data, Data], str]] = {
    "other_model": _model,
    "no_rdma_port": lambda _, asked: f"no {port_kind(asked)} port",
}
"""Sentences that also name what was asked."""


def _sentence(code: str, numbers: Data, asked: Data) -> str:
    if code in _FIXED:
        return _FIXED[code]
    return _COUNTED[code](numbers) if code in _COUNTED else _COMPARED[code](numbers, asked)


def _pool(numbers: Data) -> str:
    return f"pool {numbers['pool']}" if numbers["pool"] else "no pool"


def port_kind(asked: Data) -> str:
    return "InfiniBand" if asked["interconnect"] == "infiniband" else "RDMA"


_WITHOUT_FREE_GPUS = frozenset({"no_gpus", "other_model", "gpu_memory", "gpus_suspect"})
"""Codes beside which the number of free GPUs is pointless, or said already."""


def machine_sentence(row: Data, asked: Data, holders: Iterable[str] = ()) -> str:
    """One machine's row in words: every reason with its numbers, the main one first.

    `holders`: names of the runs that hold what is missing there, as the reader may see them.
    """
    numbers, codes = row["numbers"], row["codes"]
    parts = [_sentence(code, numbers[code], asked) for code in codes]
    if "gpus_busy" in codes:
        names = list(holders)
        held = numbers["gpus_busy"]["held"]
        parts[codes.index("gpus_busy")] += (
            f"; {held} held by {', '.join(names)}" if names else f"; {held} held"
        )
    elif numbers["machine"] and not _WITHOUT_FREE_GPUS & set(codes):
        parts.append(gpus_free(numbers["machine"]["free"], numbers["machine"]["total"]))
    if not parts:
        return "Ready for this run"
    text = "; ".join(parts)
    return capitalized(text) if text[0].islower() and codes[:1] != ["port_down"] else text
