"""From codes and numbers to sentences. Works from `as_data()` alone: what is stored can be worded years later.

The sentences about one machine are in `words_machine.py`.
"""

from collections.abc import Callable, Mapping, Sequence

from placement.phrases import (
    TOLD_IN_FULL,
    and_list,
    capitalized,
    cores,
    gib,
    models,
    plural,
    shortened,
)
from placement.words_machine import GROUP_TITLES, QUOTA_KEPT, Data, machine_sentence, port_kind

__all__ = [
    "GROUP_TITLES",
    "QUOTA_KEPT",
    "VERDICTS",
    "Data",
    "headline",
    "machine_sentence",
    "placement_sentence",
    "quota_headline",
    "verdict_words",
    "worker_reason",
]

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


def verdict_words(code: str) -> str:
    """ "ib_fabric" → "one InfiniBand fabric"."""
    return VERDICTS[code]


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
    if not data["machines"]:
        return "This cluster has no machines."
    special = _HEADLINES.get(data["cause"])
    return special(data) if special else f"{need(data)}; {found(data)}."


def quota_headline(data: Data, closed: Data) -> str:
    """As `headline`, of a gang that quotas hold; `closed`: by code, the pools that they close to it.

    Where there is no room either, that comes second.
    """
    told = "" if data["cause"] == "pools_closed" else and_list(_quotas(closed))
    return f"{capitalized(told)}. {headline(data)}" if told else headline(data)


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
        return (
            f"this cluster has no {port_kind(data['asked']) + ' ' if kind == 'fabric' else ''}{kind} for them"
        )
    if data["even_when_free"]:
        best = domains[0]
        return f"the largest {kind} ({_domain(best)}) has {best['found']}, even when all are free"
    return _found_in(kind, domains, len(domains) + data["domains_left_out"])


def _found_in(kind: str, domains: Sequence[Data], total: int) -> str:
    """The best domains by name; the rest as a sum. Three are told in full, of more the best two."""
    told = domains if total <= TOLD_IN_FULL else domains[:2]
    parts = []
    for number, domain in enumerate(told):
        names = f" ({shortened(domain['machines'], domain['found'])})" if domain["machines"] else ""
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
        return f"{count} {'is' if count == 1 else 'are'} free now ({shortened(names, count)})"
    nearest = data["nearest"]
    return (
        f"none is free now; nearest is {nearest['machines'][0]}: {machine_sentence(nearest, data['asked'])}"
    )


def _none_selected(data: Data) -> str:
    if data["main_codes"].keys() == {"same_run"}:
        return f"Every machine of this cluster already has a worker of this run ({data['main_codes']['same_run']})."
    titles = [(GROUP_TITLES[code], count) for code, count in data["main_codes"].items()]
    told = [f"{title[0].lower() + title[1:]} ({count})" for title, count in titles]
    return f"No machine of this cluster may take this run: {and_list(told)}."


def _quotas(closed: Data) -> list[str]:
    told = []
    if closed.get("pool_cap"):
        told.append(f"this run would pass its workspace's cap in {_pools(closed['pool_cap'])}")
    if closed.get("pool_guaranteed"):
        told.append(f"what is free in {_pools(closed['pool_guaranteed'])} is guaranteed to other workspaces")
    return told


def _closed(data: Data) -> str:
    """Quotas and reservations that alone keep the gang from machines that have room."""
    closed, told = data["closed"], _quotas(data["closed"])
    if closed.get("reserved"):
        count = closed["reserved"]
        verb = "is" if count == 1 else "are"
        told.append(f"{plural(count, 'machine')} {verb} reserved for runs that go first")
    return f"{need(data)}; enough have room, but {and_list(told)}."


def _pools(names: Sequence[str]) -> str:
    return f"{'pool' if len(names) == 1 else 'pools'} {shortened(names)}"


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
    "pools_closed": _closed,
    "machines_reserved": _closed,
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
