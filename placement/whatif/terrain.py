"""The fixed part of a cluster with a port up or a machine labelled, made cheaply: what the change does not touch is
shared with the topology that it comes from, down to what that has worked out and remembers.
"""

# ruff: noqa: SLF001  (a topology and its copy share what they remember; nobody else reads it)

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import numpy as np

from placement.arrays import Ints, Longs, read_only
from placement.columns import FASTEST_PORTS, PORTS_DOWN
from placement.ranks import PORTS_USED
from placement.request import Level
from placement.rules import Rule
from placement.snapshot import EMPTIED
from placement.topology import (
    NO_PORT,
    Grouping,
    Members,
    Ports,
    PortSums,
    Topology,
    members_of,
    on_compute_fabric,
    owners,
    port_sums_of,
    ports_at,
)

_WORKED_OUT = (
    "most_gpus",
    "row_of",
    "slot_of",
    "mixed",
    "own_rack",
    "home_fabric",
    "port_layouts",
    "port_layout",
)
"""Cached properties of `Topology`."""

_BY_PORT_STATE: frozenset[Rule | str] = frozenset(
    {Rule.PORT_DOWN, Rule.PORT_SLOW, Rule.NO_FABRIC, PORTS_DOWN, FASTEST_PORTS, PORTS_USED}
)
BROUGHT_UP = "brought_up"
"""Under this name a topology remembers which machines have ports that are down, and its cluster with them up."""

_BY_FABRIC: frozenset[Rule | str] = _BY_PORT_STATE | {Rule.PORT_NO_FABRIC}


def with_ports_up(topology: Topology, rows: Longs) -> Topology:
    """The same cluster with these ports (rows of `Ports`) up, at the last speed known."""
    ports = replace(topology.ports, up=_set(topology.ports.up, rows, True))
    members = _members_up(topology, rows)
    fresh = _derived(
        topology,
        _WORKED_OUT,
        _BY_PORT_STATE,
        ports=ports,
        members=members,
        port_sums=_sums_up(topology, ports, rows),
    )
    for levels, grouping in _groupings(topology):
        fresh._groupings[levels] = _regrouped(grouping, topology, members)
    return fresh


def with_rack(topology: Topology, machines: Longs, rack: Longs) -> Topology:
    """These machines in those racks, one for each."""
    kept = [name for name in _WORKED_OUT if name != "own_rack"]
    return _derived(topology, kept, {Rule.NO_RACK}, rack=_set(topology.rack, machines, rack))


def with_nvlink_domain(topology: Topology, machines: Longs, domain: Longs) -> Topology:
    """These machines in those NVLink domains, one for each."""
    joined = _set(topology.nvlink_domain, machines, domain)
    fresh = _derived(topology, _WORKED_OUT, {Rule.NO_NVLINK_DOMAIN}, nvlink_domain=joined)
    return _with_groupings_without(fresh, topology, "nvlink_domain")


def with_fabric(topology: Topology, ports: Longs, fabric: int) -> Topology:
    """These ports on that fabric."""
    table = replace(topology.ports, fabric=_set(topology.ports.fabric, ports, fabric))
    fresh = _derived(
        topology,
        [name for name in _WORKED_OUT if name != "home_fabric"],
        _BY_FABRIC,
        ports=table,
        members=members_of(table, topology.fabrics),
        port_sums=port_sums_of(table, topology.fabrics),
    )
    return _with_groupings_without(fresh, topology, "fabric")


def _derived(
    topology: Topology, kept: Iterable[str], forgotten: AbstractSet[Rule | str], **changed: Any
) -> Topology:
    """A copy with these fields changed; what is remembered of `forgotten` (rules, or by name) depends on them."""
    forgotten = forgotten | {EMPTIED, BROUGHT_UP}
    remembered = {
        key: known
        for key, known in dict(topology._remembered).items()
        if forgotten.isdisjoint(key[0] if isinstance(key[0], tuple) else key[:1])
    }
    # What passes depends on names, states and GPUs alone, which both have in common: they share it.
    fresh = replace(topology, **changed, _groupings={}, _remembered=remembered, _joined={})
    worked_out, own = vars(topology), vars(fresh)
    own.update({name: worked_out[name] for name in kept if name in worked_out})
    return fresh


def _groupings(topology: Topology) -> list[tuple[frozenset[Level], Grouping]]:
    return list(topology._groupings.items())


def _with_groupings_without(fresh: Topology, topology: Topology, level: Level) -> Topology:
    """Groupings in which that level plays no part hold for both."""
    kept = {levels: grouping for levels, grouping in _groupings(topology) if level not in levels}
    fresh._groupings.update(kept)
    return fresh


def _set(array: Any, rows: Longs, value: Any) -> Any:
    changed = array.copy()
    changed[rows] = value
    return read_only(changed)


def _member_rows(topology: Topology, machine: Longs | Ints, fabric: Ints) -> Longs:
    """Rows of the memberships of these machines on these fabrics; each must be one."""
    members, size = topology.members, topology.size
    keys = members.fabric.astype(np.int64) * size + members.machine
    return np.searchsorted(keys, fabric.astype(np.int64) * size + machine)


def _members_up(topology: Topology, rows: Longs) -> Members:
    ports = topology.ports
    rows = rows[on_compute_fabric(ports, topology.fabrics)[rows]]
    gbps = topology.members.gbps.copy()
    np.maximum.at(gbps, _member_rows(topology, owners(ports)[rows], ports.fabric[rows]), ports.gbps[rows])
    return replace(topology.members, gbps=read_only(gbps))


def _regrouped(grouping: Grouping, topology: Topology, members: Members) -> Grouping:
    if grouping.gbps is None:
        return grouping
    rows = _member_rows(topology, grouping.machine, grouping.fabric[grouping.domain])
    return replace(grouping, gbps=read_only(members.gbps[rows]))


def _sums_up(topology: Topology, ports: Ports, rows: Longs) -> PortSums:
    """The port sums with `ports`, of which only `rows` came up."""
    machines = np.unique(owners(ports)[rows])
    _, there = ports_at(ports, machines)
    there = there[on_compute_fabric(ports, topology.fabrics)[there]]
    best = {True: topology.port_sums.best_up.copy(), False: topology.port_sums.best_down.copy()}
    owner = owners(ports)
    for up, table in best.items():
        table[:, machines] = NO_PORT
        one = there[ports.up[there] == up]
        np.maximum.at(table, (ports.link[one], owner[one]), ports.gbps[one])
    return replace(topology.port_sums, best_up=read_only(best[True]), best_down=read_only(best[False]))
