"""Puts right what a refusal complains about, and nothing else: if the gang still waits, a reason was kept quiet."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placement import GpuFacts, GroupRequest, MachineFacts, MachineState, PortFacts, Request
from placement.facts import Link
from tests.placement.reference import shared_levels
from tests.placement.reference_rules import LINKS

PLENTY = 10**15
STATES = {"cordoned", "draining", "unreachable", "stale_agent", "quarantined", "contested", "not_ready"}
STATE_BITS = {state.name.lower(): state for state in MachineState if state.name}
NEW_GPUS = {"no_gpus", "other_model", "too_few_gpus", "gpu_memory"}


def lifted(request: Request, codes: Collection[str]) -> Request:
    """The request of one group without what these codes say it forbids itself, or is forbidden."""
    (group,) = request.groups
    selection = replace(group.selection, **_nothing(codes, OF_SELECTION))
    groups = (replace(group, selection=selection),)
    return replace(request, groups=groups, **_nothing(codes, OF_REQUEST))


NOBODY: frozenset[str] = frozenset()
OF_SELECTION = {
    "not_in_pools": ("pools", None),
    "not_named": ("machines", None),
    "excluded": ("exclude_machines", NOBODY),
}
OF_REQUEST = {
    "pool_not_allowed": ("allowed_pools", None),
    "pool_cap": ("over_cap", NOBODY),
    "pool_guaranteed": ("guaranteed_to_others", NOBODY),
    "reserved": ("reserved", NOBODY),
    "same_run": ("occupied", NOBODY),
}
"""Code → the field that refuses, and its value when it refuses nothing."""


def _nothing(codes: Collection[str], fields: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    return dict(field for code, field in fields.items() if code in codes)


def mended(one: MachineFacts, codes: set[str], group: GroupRequest, split: int) -> MachineFacts:
    """The machine with every stated reason that lies in the machine itself put right."""
    if "label_missing" in codes:
        one = replace(one, labels={**one.labels, **group.selection.match_labels})
    if "drive_missing" in codes:
        one = replace(one, drives=one.drives | group.drives)
    for state in STATES & codes:
        one = replace(one, state=MachineState.READY | one.state & ~STATE_BITS.get(state, MachineState(0)))
    if "no_rack" in codes:
        one = replace(one, rack=f"rack-of-{one.name}")
    if "no_nvlink_domain" in codes:
        one = replace(one, nvlink_domain=f"domain-of-{one.name}")
    one = replace(one, gpus=_gpus(one, codes, group, split), ports=_ports(one, codes, group))
    # A worker's share of the machine follows the number of its GPUs: new ones need new cores.
    if codes & {"cpu_short", *NEW_GPUS}:
        one = replace(one, cpu_free_millicores=PLENTY)
    if codes & {"memory_short", *NEW_GPUS}:
        one = replace(one, memory_free_bytes=PLENTY)
    return one


def _gpus(one: MachineFacts, codes: set[str], group: GroupRequest, split: int) -> tuple[GpuFacts, ...]:
    if codes & NEW_GPUS:
        model = min(group.models) if group.models else "H100"
        return tuple(GpuFacts(index, index, model, 1 << 40) for index in range(max(split, len(one.gpus))))
    gpus = one.gpus
    if "gpus_faulty" in codes:  # replaced by a new one, whatever else was to be said about it
        gpus = tuple(
            GpuFacts(gpu.index, gpu.id, gpu.model, gpu.memory_bytes) if gpu.faulty else gpu for gpu in gpus
        )
    if "gpus_busy" in codes:
        gpus = tuple(replace(gpu, held=False) for gpu in gpus)
    if "gpus_suspect" in codes:
        gpus = tuple(replace(gpu, suspect=False) for gpu in gpus)
    return gpus


def _ports(one: MachineFacts, codes: set[str], group: GroupRequest) -> tuple[PortFacts, ...]:
    ports = one.ports
    if codes & {"no_rdma_port", "port_no_fabric", "no_fabric"}:
        ports = (*ports, _port(9, _link(group), f"fabric-of-{one.name}"))
    if "port_slow" in codes:
        ports = tuple(replace(port, gbps=max(port.gbps, group.min_gbps or 0)) for port in ports)
    if "port_down" in codes:
        ports = tuple(replace(port, up=True) for port in ports)
    return ports


def _link(group: GroupRequest) -> Link:
    links: dict[str, list[Link]] = LINKS  # type: ignore[assignment]
    return links.get(group.interconnect, ["infiniband"])[0]


def _port(number: int, link: Link, fabric: str) -> PortFacts:
    return PortFacts(f"mlx5_{number}:1", link, up=True, gbps=400, fabric=fabric)


def brought_together(
    machines: Sequence[MachineFacts], group: GroupRequest, needed: int
) -> list[MachineFacts]:
    """As many machines as needed, standing as the group must stand: in one domain, in different places."""
    levels = shared_levels(group, needed)
    copies = [machines[number % len(machines)] for number in range(needed)]
    return [
        replace(
            one,
            name=f"{one.name}-{number}",
            rack="one" if "rack" in levels else f"r-{number}" if group.spread == "rack" else one.rack,
            nvlink_domain="one" if "nvlink_domain" in levels else one.nvlink_domain,
            ports=(*one.ports, *_joining(group, levels, number)),
        )
        for number, one in enumerate(copies)
    ]


def _joining(group: GroupRequest, levels: set[str], number: int) -> list[PortFacts]:
    """A port on one fabric for all; with `spread` so many on one of its own that the machine is at home there."""
    shared = [_port(10, _link(group), "one")] if "fabric" in levels else []
    own = range(11, 20) if group.spread == "fabric" else ()
    return shared + [_port(port, _link(group), f"own-{number}") for port in own]
