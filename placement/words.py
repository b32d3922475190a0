"""From codes and numbers to sentences. Works from `as_data()` alone: what is stored can be worded years later.

One rule, one code, one sentence template: `_FIXED`, `_COUNTED`, `_COMPARED`. Who holds what is missing is known to the
caller, who passes names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from placement.phrases import (
    TOLD_IN_FULL,
    and_list,
    cores,
    gib,
    gpu_names,
    gpus_free,
    models,
    plural,
    shortened,
)

Data = Mapping[str, Any]

VERDICTS: Mapping[str, str] = {
    "one_machine": "one machine",
    "nvlink_domain": "one NVLink domain",
    "ib_rack": "one rack on one InfiniBand fabric",
    "ib_fabric": "one InfiniBand fabric",
    "roce_rack": "RoCE in one rack",
    "roce": "RoCE",
    "ethernet": "Ethernet",
}
"""Verdict code → words, as the run's page says them."""

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
    "not_ready": "Not ready",
    "gpus_faulty": "GPU faulty",
    "memory_short": "Too little free memory",
    "cpu_short": "Too few free cores",
    "gpus_busy": "Too few free GPUs",
    "gpus_suspect": "GPU not healthy",
    "stale_agent": "Old agent",
    "draining": "Draining",
    "cordoned": "Cordoned",
}
"""Short form of each code: the heading under which machines are listed. "" is for machines that no rule refuses."""


def _suspects(numbers: Data) -> str:
    ready = f"{numbers['healthy']} of {numbers['free']} free GPUs are healthy, {numbers['needed']} needed"
    marked = numbers["gpus"]
    return f"{ready}; {gpu_names(marked)} {'is' if len(marked) == 1 else 'are'} suspect" if marked else ready


def _faulty(numbers: Data) -> str:
    sound = numbers["total"] - numbers["faulty"]
    text = f"{sound} of {numbers['total']} GPUs are sound, {numbers['needed']} needed"
    marked = numbers["gpus"]
    return f"{text}; {gpu_names(marked)} {'is' if len(marked) == 1 else 'are'} faulty" if marked else text


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
    "not_ready": "not ready",
    "stale_agent": "its agent is too old",
    "draining": "draining, takes no new work",
    "cordoned": "cordoned",
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
    "memory_short": lambda n: f"{gib(n['free'])} of memory free, {gib(n['needed'])} needed",
    "cpu_short": lambda n: f"{cores(n['free'])} free, {cores(n['needed'], unit=False)} needed",
    "gpus_busy": _busy,
    "gpus_suspect": _suspects,
}
"""Sentences from the reason's own numbers."""

_COMPARED: Mapping[str, Callable[[Data, Data], str]] = {
    "other_model": _model,
    "no_rdma_port": lambda _, asked: f"no {_port_kind(asked)} port",
}
"""Sentences that also name what was asked."""


def _sentence(code: str, numbers: Data, asked: Data) -> str:
    if code in _FIXED:
        return _FIXED[code]
    return _COUNTED[code](numbers) if code in _COUNTED else _COMPARED[code](numbers, asked)


def _pool(numbers: Data) -> str:
    return f"pool {numbers['pool']}" if numbers["pool"] else "no pool"


def _port_kind(asked: Data) -> str:
    return "InfiniBand" if asked["interconnect"] == "infiniband" else "RDMA"


_WITHOUT_FREE_GPUS = frozenset({"no_gpus", "other_model", "gpu_memory", "gpus_suspect"})
"""Codes beside which the number of free GPUs is pointless, or said already."""


def verdict_words(code: str) -> str:
    """ "ib_fabric" → "one InfiniBand fabric"."""
    return VERDICTS[code]


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
    return text[0].upper() + text[1:] if text[0].islower() and codes[:1] != ["port_down"] else text


def worker_reason(data: Data) -> str:
    """The refusal for the pages of the workers: what the set lacks comes first."""
    lead = {
        "no_fabric_room": "No fabric has room: ",
        "no_rack_room": "No rack has room: ",
        "no_nvlink_room": "No NVLink domain has room: ",
    }
    return lead.get(data["cause"], "") + headline(data)


def headline(data: Data) -> str:
    """One sentence for a refusal: what the gang needs, and what there is."""
    if not data["rows"]:
        return "This cluster has no machines."
    special = _HEADLINES.get(data["cause"])
    return special(data) if special else f"{need(data)}; {found(data)}."


def need(data: Data) -> str:
    """ "2 machines with 8 free H100s on one fabric are needed"."""
    shape, count = data["shape"], data["shape"]["machines"]
    others = [_with_gpus(data, other, short=True) for other in data["other_shapes"]]
    alternatives = f", or {', or '.join(others)}," if 0 < len(others) <= TOLD_IN_FULL else ""
    where = _together(data["asked"], count)
    verb = "is" if count == 1 else "are"
    return f"{_with_gpus(data, shape)}{_extras(data)}{where}{alternatives} {verb} needed"


def _with_gpus(data: Data, shape: Data, *, short: bool = False) -> str:
    if short:
        return f"{shape['machines']} with {shape['gpus']}"
    machines = plural(shape["machines"], "machine")
    if not shape["gpus"]:
        return machines
    free = "" if data["even_when_free"] else "free "
    return f"{machines} with {shape['gpus']} {free}{models(data['asked']['models'], shape['gpus'])}"


def _extras(data: Data) -> str:
    """What must be named beside the GPUs, because it alone keeps machines from being usable."""
    asked, mentioned, told = data["asked"], list(data["mentions"]), []
    if not data["shape"]["gpus"]:
        mentioned += [what for what in ("cpu", "memory") if what not in mentioned]
    if "gpu_memory" in mentioned:
        told.append(f"{gib(asked['min_memory_bytes'])} on each GPU")
    if "cpu" in mentioned:
        amount = asked["cpu_millicores"]
        told += ["their share of the cores"] if amount is None else [cores(amount)] if amount else []
    if "memory" in mentioned:
        size = asked["memory_bytes"]
        told += ["their share of the memory"] if size is None else [f"{gib(size)} of memory"] if size else []
    if "port" in mentioned:
        told.append(
            f"a port of at least {asked['min_gbps']} Gb/s" if asked["min_gbps"] else "a port that is up"
        )
    if not told:
        return ""
    if data["shape"]["gpus"]:
        return f" and {told[0]}" if len(told) == 1 else f", {and_list(told)}"
    return f" with {and_list(told)}"


def _together(asked: Data, machines: int) -> str:
    if machines == 1:
        return ""
    level = asked["keep_within"]
    if level is None and asked["interconnect"] in ("rdma", "infiniband"):
        level = "fabric"
    if level is None and asked["interconnect"] == "nvlink":
        level = "nvlink_domain"
    within = {
        None: "",
        "fabric": " on one fabric",
        "rack": " in one rack",
        "nvlink_domain": " in one NVLink domain",
    }[level]
    apart = {"rack": " in different racks", "fabric": " on different fabrics"}.get(asked["spread"], "")
    return within + apart


def found(data: Data) -> str:
    """ "fabric ib-a has 1 (gpu-01), ib-b has 0"."""
    domains = data["domains"]
    if domains and domains[0]["kind"] == "cluster":
        return _found_anywhere(data, domains[0])
    kind = {"no_nvlink_room": "NVLink domain", "no_rack_room": "rack"}.get(data["cause"])
    if kind is None:
        kind = (
            {"nvlink_domain": "NVLink domain"}.get(domains[0]["kind"], domains[0]["kind"])
            if domains
            else "fabric"
        )
    if not domains:
        return f"this cluster has no {_port_kind(data['asked']) + ' ' if kind == 'fabric' else ''}{kind} for them"
    if data["even_when_free"]:
        best = domains[0]
        return f"the largest {kind} ({_domain(best)}) has {best['found']}, even when all are free"
    return _found_in(kind, domains, len(domains) + data["domains_left_out"])


def _found_in(kind: str, domains: Sequence[Data], total: int) -> str:
    """The best domains by name; the rest as a sum. Three are told in full, of more the best two."""
    told = domains if total <= TOLD_IN_FULL else domains[:2]
    parts = []
    for number, domain in enumerate(told):
        names = f" ({shortened(domain['machines'])})" if domain["machines"] else ""
        parts.append(f"{kind + ' ' if number == 0 else ''}{_domain(domain)} has {domain['found']}{names}")
    if total > len(told):
        most = domains[len(told)]["found"]
        rest = "none" if most == 0 else f"at most {most} each"
        parts.append(
            f"the other {plural(total - len(told), kind)} {'has' if total - len(told) == 1 else 'have'} {rest}"
        )
    return ", ".join(parts)


def _domain(domain: Data) -> str:
    name = domain["name"] or "of RoCE ports without a fabric"
    return f"{name} on {domain['on_fabric']}" if domain["on_fabric"] else name


def _found_anywhere(data: Data, cluster: Data) -> str:
    count, names = cluster["found"], cluster["machines"]
    if data["even_when_free"]:
        return f"this cluster has {count or 'none'}, even when all are free"
    if count:
        return f"{count} {'is' if count == 1 else 'are'} free now ({shortened(names)})"
    nearest = next(row for row in data["rows"] if row["codes"])
    return (
        f"none is free now; nearest is {nearest['machines'][0]}: {machine_sentence(nearest, data['asked'])}"
    )


def _none_selected(data: Data) -> str:
    counts: dict[str, int] = {}
    for row in data["rows"]:
        title = GROUP_TITLES[row["codes"][0]]
        counts[title] = counts.get(title, 0) + len(row["machines"])
    told = [f"{title[0].lower() + title[1:]} ({count})" for title, count in counts.items()]
    return f"No machine of this cluster may take this run: {and_list(told)}."


def _no_model(data: Data) -> str:
    wanted = " or ".join(data["asked"]["models"]) or "any"
    there = and_list(data["models_present"]) or "no GPUs of a known model"
    return f"No machine open to this run has {wanted} GPUs; this cluster has {there}."


def _no_spread(data: Data) -> str:
    if data["asked"]["keep_within"] or data["domains"][0]["kind"] != "cluster":
        return f"{need(data)}; {found(data)}."
    what = {"rack": "rack", "fabric": "fabric"}[data["asked"]["spread"]]
    return f"{need(data)}; the usable ones stand in {plural(data['domains'][0]['found'], what)}."


def _collide(data: Data) -> str:
    who = f"group {data['group']}" if data["group"] else "one group"
    together = "Each group of workers fits alone, but not all together: they need the same machines."
    return f"{together} For {who}, {need(data)}; {found(data)}."


def _no_shape(data: Data) -> str:
    asked = data["asked"]
    if asked["machines"]:
        return f"{plural(asked['gpus'], 'GPU')} can't be split evenly over {plural(asked['machines'], 'machine')}."
    limits = []
    if asked["min_per_machine"] > 1:
        limits.append(f"at least {asked['min_per_machine']} on each")
    if asked["min_nodes"] or asked["max_nodes"]:
        low, high = asked["min_nodes"] or 1, asked["max_nodes"]
        limits.append(f"{low} to {high} machines" if high else f"at least {low} machines")
    rule = f" with {and_list(limits)}" if limits else ""
    largest = data["largest_machine_gpus"]
    if largest == 0:
        return _no_model(data)
    reach = f"the largest machine has {plural(largest, 'GPU')}"
    return f"{plural(asked['gpus'], 'GPU')} can't be split evenly{rule}: {reach}."


_HEADLINES: Mapping[str, Callable[[Data], str]] = {
    "none_selected": _none_selected,
    "no_model": _no_model,
    "no_spread": _no_spread,
    "groups_collide": _collide,
    "no_shape": _no_shape,
}


def placement_sentence(data: Data) -> str:
    """ "gpu-01 and gpu-02, one InfiniBand fabric"; groups are parted by semicolons."""
    parts = []
    for group in data["groups"]:
        name = f"{group['group']}: " if group["group"] else ""
        parts.append(f"{name}{_machine_names(group['chosen'])}, {VERDICTS[group['verdict']]}")
    return "; ".join(parts)


def _machine_names(names: Sequence[str]) -> str:
    if len(names) <= TOLD_IN_FULL:
        return and_list(names)
    return f"{names[0]} to {names[-1]}" if list(names) == sorted(names) else f"{shortened(names)}"
