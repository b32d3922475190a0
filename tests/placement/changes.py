"""Changes that explanations offer, made to the facts and the request: what the engine tried on its arrays."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placement import GroupRequest, MachineFacts, MachineState, Request, Selection
from placement.holdings import Hold, Holding

# Numbers that would have to change (`possible_ever`).

FIELDS = {
    "gpu_requests.count": "gpus",
    "gpu_requests.min_memory_bytes": "min_memory_bytes",
    "network.interconnect": "interconnect",
    "topology.keep_within": "keep_within",
    "topology.spread": "spread",
    "cpu_millicores": "cpu_millicores",
    "per_gpu.cpu_millicores": "cpu_millicores_per_gpu",
    "memory_bytes": "memory_bytes",
    "per_gpu.memory_bytes": "memory_bytes_per_gpu",
}


def changed(group: GroupRequest, field: str, value: Any) -> GroupRequest:
    """The group with one field as `Impossible.changes` tells it."""
    match field:
        case "machines":
            return replace(group, **(value if isinstance(value, dict) else {"machines": value}))
        case "gpu_requests.models":
            return replace(group, models=frozenset(value))
        case "network.min_gbps":
            return replace(group, min_gbps=value or None)
        case "node_selection":
            return replace(group, selection=Selection())
    return replace(group, **{FIELDS[field]: value})


# The request, changed by a merge patch of its run document (what-ifs).


def patched(request: Request, patch: Mapping[str, Any]) -> Request:
    """The request of the run document after this patch of its `spec`."""
    if patch.get("preemptible"):
        request = replace(request, guaranteed_to_others=frozenset())
    named = patch.get("worker_groups", {})
    groups = []
    for group in request.groups:
        template = named.get(group.name, {}) if group.name else patch
        resources = template.get("task_template", {}).get("requested_resources", {})
        groups.append(_group_patched(group, resources))
    return replace(request, groups=tuple(groups))


def _group_patched(group: GroupRequest, resources: Mapping[str, Any]) -> GroupRequest:
    fields = dict(_fields_of(resources))
    selection = _selection_patched(group.selection, resources.get("node_selection", {}))
    return replace(group, **fields, selection=selection)


def _fields_of(resources: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Fields of `GroupRequest` with their new values; a path that is not known is an error."""
    for part, values in resources.items():
        if part == "node_selection":
            continue
        for name, value in values.items() if isinstance(values, Mapping) else [("", values)]:
            path = f"{part}.{name}" if name else part
            yield _FIELD_OF[path], _read(path, value)


_FIELD_OF = {
    "machines": "machines",
    "gpu_requests.count": "gpus",
    "gpu_requests.models": "models",
    "gpu_requests.healthy_only": "healthy_only",
    "gpu_requests.min_memory_bytes": "min_memory_bytes",
    "gpu_requests.min_per_machine": "min_per_machine",
    "topology.min_nodes": "min_nodes",
    "topology.max_nodes": "max_nodes",
    "topology.keep_within": "keep_within",
    "topology.spread": "spread",
    "network.interconnect": "interconnect",
    "network.min_gbps": "min_gbps",
    "per_gpu.cpu_cores": "cpu_millicores_per_gpu",
    "per_gpu.memory_bytes": "memory_bytes_per_gpu",
    "cpu_cores": "cpu_millicores",
    "memory_bytes": "memory_bytes",
}


def _read(path: str, value: Any) -> Any:
    if path.endswith("cpu_cores"):
        return None if value is None else round(value * 1000)
    if path == "gpu_requests.models":
        return frozenset(value or ())
    return (
        {"gpu_requests.min_memory_bytes": 0, "gpu_requests.min_per_machine": 1}.get(path)
        if value is None
        else value
    )


def _selection_patched(selection: Selection, part: Mapping[str, Any]) -> Selection:
    if "pools" in part:
        selection = replace(selection, pools=_names(part["pools"]))
    if "machines" in part:
        selection = replace(selection, machines=_names(part["machines"]))
    if "exclude_machines" in part:
        selection = replace(selection, exclude_machines=_names(part["exclude_machines"]) or frozenset())
    if "match_labels" in part:
        wanted = {**selection.match_labels, **(part["match_labels"] or dict.fromkeys(selection.match_labels))}
        kept = {key: value for key, value in wanted.items() if value is not None}
        selection = replace(selection, match_labels=kept)
    return selection


def _names(value: Sequence[str] | None) -> frozenset[str] | None:
    return None if value is None else frozenset(value)


# The cluster and other runs, changed as a what-if says.


def undergone(
    machines: Sequence[MachineFacts],
    request: Request,
    change: Mapping[str, Any],
    holdings: Sequence[Holding],
) -> tuple[list[MachineFacts], Request]:
    """Cluster and request after one change to the cluster or to a run, from its data; others leave both as they are."""
    code, numbers = change["code"], change["numbers"]
    if code == "end_run":
        keys = {run["key"] for run in numbers["runs"]}
        holds = [hold for holding in holdings if holding.key in keys for hold in holding.holds]
        return [released(one, holds) for one in machines], request
    if code == "raise_cap":
        return list(machines), replace(request, over_cap=request.over_cap - set(numbers["pools"]))
    if code == "wait_reserved":
        return list(machines), replace(request, reserved=request.reserved - set(numbers["machines"]))
    targets: dict[str, list[Mapping[str, Any]]] = {}
    for target in numbers.get("targets", ()):
        targets.setdefault(target["machine"], []).append(target)
    after = list(machines)
    for row, one in enumerate(after):
        for target in targets.get(one.name, ()):
            after[row] = _visited(after[row], code, target)
    return after, request


def _visited(one: MachineFacts, code: str, target: Mapping[str, Any]) -> MachineFacts:
    match code:
        case "set_rack":
            return replace(one, rack=target["value"])
        case "set_nvlink_domain":
            return replace(one, nvlink_domain=target["value"])
        case "set_fabric":
            ports = (
                replace(port, fabric=target["value"]) if port.link == "infiniband" else port
                for port in one.ports
            )
            return replace(one, ports=tuple(ports))
        case "bring_port_up":
            ports = (replace(port, up=port.up or port.name == target["port"]) for port in one.ports)
            return replace(one, ports=tuple(ports))
        case "clear_suspect" | "repair_gpu":
            gpus = (
                replace(gpu, suspect=False, faulty=False) if gpu.index in target["gpus"] else gpu
                for gpu in one.gpus
            )
            return replace(one, gpus=tuple(gpus))
        case "uncordon" | "undrain" | "end_quarantine" | "stop_copy" | "update_agent" | "bring_back":
            return replace(one, state=MachineState.READY)
    raise AssertionError(f"{code} is not a change to a machine that these tests know")


def released(one: MachineFacts, holds: Iterable[Hold]) -> MachineFacts:
    """The machine after what is held there has ended."""
    for hold in holds:
        if hold.machine == one.name:
            gpus = (replace(gpu, held=gpu.held and gpu.index not in hold.gpus) for gpu in one.gpus)
            one = replace(
                one,
                gpus=tuple(gpus),
                cpu_free_millicores=one.cpu_free_millicores + hold.cpu_millicores,
                memory_free_bytes=one.memory_free_bytes + hold.memory_bytes,
            )
    return one


def holdings_on(machines: Sequence[MachineFacts]) -> list[Holding]:
    """Runs that hold all that is held: machines by twos, the last one alone."""
    holds = [
        Hold(
            one.name,
            tuple(gpu.index for gpu in one.gpus if gpu.held),
            one.cpu_millicores - one.cpu_free_millicores,
            one.memory_bytes - one.memory_free_bytes,
        )
        for one in machines
    ]
    held = [hold for hold in holds if hold.gpus or hold.cpu_millicores or hold.memory_bytes]
    return [
        Holding(key, tuple(held[start : start + 2]), None if key % 2 else 1000.0 * key)
        for key, start in enumerate(range(0, len(held), 2), 1)
    ]
