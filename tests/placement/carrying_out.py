"""An offer carried out on the facts and the request, by what its data says rather than by arrays."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from placement import GpuFacts, GroupRequest, MachineFacts, MachineState, PortFacts, Request, Selection
from placement.holdings import Hold
from placement.whatif import Code, Named, WhatIf
from tests.placement.offering import merged


def carried_out(
    facts: Sequence[MachineFacts], request: Request, holdings: Sequence[Named], offer: WhatIf
) -> tuple[list[MachineFacts], Request]:
    """The cluster and the request as the offer would have them, by the sentences' words rather than by arrays."""
    by_name = {machine.name: machine for machine in facts}
    if offer.document_patch:
        request = request_patched(request, offer.document_patch)
    for change in offer.changes:
        for target in change.numbers.get("targets", ()):
            by_name[target["machine"]] = machine_mended(by_name[target["machine"]], change.code, target)
        for ended in change.numbers.get("runs", ()):
            [holding] = [named.holding for named in holdings if named.holding.key == ended["key"]]
            for hold in holding.holds:
                by_name[hold.machine] = machine_freed(by_name[hold.machine], hold)
        if change.code is Code.RAISE_CAP:
            request = replace(request, over_cap=request.over_cap - set(change.numbers["pools"]))
        if change.code is Code.WAIT_RESERVED:
            request = replace(request, reserved=request.reserved - set(change.numbers["machines"]))
    return list(by_name.values()), request


def machine_freed(machine: MachineFacts, hold: Hold) -> MachineFacts:
    return replace(
        machine,
        cpu_free_millicores=machine.cpu_free_millicores + hold.cpu_millicores,
        memory_free_bytes=machine.memory_free_bytes + hold.memory_bytes,
        gpus=tuple(replace(gpu, held=gpu.held and gpu.index not in hold.gpus) for gpu in machine.gpus),
    )


def machine_mended(machine: MachineFacts, code: Code, target: dict[str, Any]) -> MachineFacts:
    fields: dict[str, Any] = {}
    match code:
        case Code.UNCORDON:
            fields = {"state": machine.state & ~MachineState.CORDONED}
        case Code.UNDRAIN | Code.END_QUARANTINE | Code.STOP_COPY | Code.UPDATE_AGENT | Code.BRING_BACK:
            fields = {"state": MachineState.READY}
        case Code.CLEAR_SUSPECT | Code.REPAIR_GPU:
            fields = {"gpus": tuple(gpu_mended(gpu, target["gpus"]) for gpu in machine.gpus)}
        case Code.BRING_PORT_UP:
            fields = {"ports": tuple(port_up(port, target["port"]) for port in machine.ports)}
        case Code.SET_RACK:
            fields = {"rack": target["value"]}
        case Code.SET_NVLINK_DOMAIN:
            fields = {"nvlink_domain": target["value"]}
        case Code.SET_FABRIC:
            fields = {"ports": tuple(port_on(port, target["value"]) for port in machine.ports)}
    assert fields, code
    return replace(machine, **fields)


def gpu_mended(gpu: GpuFacts, mended: Sequence[int]) -> GpuFacts:
    return replace(gpu, suspect=False, faulty=False) if gpu.index in mended else gpu


def port_up(port: PortFacts, name: str) -> PortFacts:
    return replace(port, up=True) if port.name == name else port


def port_on(port: PortFacts, fabric: str) -> PortFacts:
    return replace(port, fabric=fabric) if port.link == "infiniband" else port


def request_patched(request: Request, patch: dict[str, Any]) -> Request:
    by_group = {name: part["task_template"] for name, part in patch.get("worker_groups", {}).items()}
    if "task_template" in patch:
        by_group[request.groups[0].name] = patch["task_template"]
    if patch.get("preemptible"):
        request = replace(request, guaranteed_to_others=frozenset())
    groups = tuple(
        group_patched(group, by_group[group.name]["requested_resources"]) if group.name in by_group else group
        for group in request.groups
    )
    return replace(request, groups=groups)


def group_patched(group: GroupRequest, resources: dict[str, Any]) -> GroupRequest:
    fields: dict[str, Any] = {}
    gpus = resources.get("gpu_requests", {})
    names = {"count": "gpus", "healthy_only": "healthy_only", "min_per_machine": "min_per_machine"}
    fields |= {names[key]: value for key, value in gpus.items() if key in names}
    if "models" in gpus:
        fields["models"] = frozenset(gpus["models"])
    if "min_memory_bytes" in gpus:
        fields["min_memory_bytes"] = gpus["min_memory_bytes"] or 0
    fields |= resources.get("topology", {}) | resources.get("network", {})
    fields |= {key: resources[key] for key in ("machines", "memory_bytes") if key in resources}
    if "cpu_cores" in resources:
        fields["cpu_millicores"] = 1000 * resources["cpu_cores"]
    if "cpu_cores" in resources.get("per_gpu", {}):
        fields["cpu_millicores_per_gpu"] = 1000 * resources["per_gpu"]["cpu_cores"]
    if "memory_bytes" in resources.get("per_gpu", {}):
        fields["memory_bytes_per_gpu"] = resources["per_gpu"]["memory_bytes"]
    if "node_selection" in resources:
        fields["selection"] = selection_patched(group.selection, resources["node_selection"])
    return replace(group, **fields)


def selection_patched(selection: Selection, patch: dict[str, Any]) -> Selection:
    fields: dict[str, Any] = {
        key: None if patch[key] is None else frozenset(patch[key])
        for key in ("pools", "machines", "exclude_machines")
        if key in patch
    }
    if "match_labels" in patch:
        fields["match_labels"] = merged(selection.match_labels, patch["match_labels"]) or {}
    return replace(selection, **fields)
