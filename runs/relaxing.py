"""Whether an edited request asks for nothing that the old one did not: then it keeps its time in the queue."""

from wire.spec import Group, Network, NodeSelection, RequestedResources, RunDocument, Topology

WIDER = {
    "infiniband": {"infiniband", "rdma", "any"},
    "rdma": {"rdma", "any"},
    "ethernet": {"ethernet", "any"},
    "nvlink": {"nvlink", "any"},
    "any": {"any"},
}
"""Interconnect → those that every placement for it satisfies too."""


def relaxes(old: RunDocument, new: RunDocument) -> bool:
    """True when every place that would do for `old` surely does for `new`. In doubt it is False."""
    before, after = old.groups(), new.groups()
    return len(before) == len(after) and all(map(_group_relaxes, before, after))


def _group_relaxes(before: Group, after: Group) -> bool:
    old, new = before.template.requested_resources, after.template.requested_resources
    return (
        _drives(after) <= _drives(before)
        and _size_relaxes(old, new)
        and _gpus_relax(old, new)
        and _network_relaxes(old.network, new.network)
        and _topology_relaxes(old.topology, new.topology)
        and _selection_relaxes(old.node_selection, new.node_selection)
    )


def _drives(group: Group) -> set[str]:
    return {ref.name for ref in group.template.datavolume_refs}


def _size_relaxes(old: RequestedResources, new: RequestedResources) -> bool:
    """Each split that was allowed has one that needs no more machines, GPUs, cores or memory."""
    return all(
        any(
            small.machines <= large.machines
            and small.gpus_per_machine <= large.gpus_per_machine
            and _within(new.amounts(small), old.amounts(large))
            for small in new.shapes()
        )
        for large in old.shapes()
    )


def _within(new: tuple[int, int] | None, old: tuple[int, int] | None) -> bool:
    """None: the GPUs' share of the machine, which compares with no number."""
    if new is None or old is None:
        return new is old
    return new[0] <= old[0] and new[1] <= old[1]


def _gpus_relax(old: RequestedResources, new: RequestedResources) -> bool:
    if new.gpu_requests is None:
        return True
    if old.gpu_requests is None:
        return False
    was, now = old.gpu_requests, new.gpu_requests
    return (
        (not now.models or (bool(was.models) and set(was.models) <= set(now.models)))
        and (was.healthy_only or not now.healthy_only)
        and (now.min_memory_bytes or 0) <= (was.min_memory_bytes or 0)
    )


def _network_relaxes(old: Network, new: Network) -> bool:
    return new.interconnect in WIDER[old.interconnect] and (new.min_gbps or 0) <= (old.min_gbps or 0)


def _topology_relaxes(old: Topology, new: Topology) -> bool:
    return new.keep_within in {None, old.keep_within} and new.spread in {None, old.spread}


def _selection_relaxes(old: NodeSelection, new: NodeSelection) -> bool:
    return set(new.exclude_machines) <= set(old.exclude_machines) and _mode_relaxes(old, new)


def _mode_relaxes(old: NodeSelection, new: NodeSelection) -> bool:
    if new.mode == "Any":
        return True
    if new.mode != old.mode:
        return False
    return (
        set(old.pools) <= set(new.pools)
        and set(old.machines) <= set(new.machines)
        and new.match_labels.items() <= old.match_labels.items()
    )
