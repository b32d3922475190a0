"""Labels that are missing: a machine whose rack, fabric or NVLink domain is not known is grouped with no other.

Offered for a place that has room already and lacks a few machines; whether they stand there is for people to say.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from placement.arrays import UNKNOWN, Bools, Ints, Longs
from placement.domains import Slots, slots_of
from placement.request import Level
from placement.room import must_share, room
from placement.rules import Rule
from placement.snapshot import Snapshot
from placement.topology import INFINIBAND, Topology, owners, ports_at
from placement.whatif.bench import Bench, Case
from placement.whatif.changes import Change, Code, WhatIf
from placement.whatif.terrain import with_fabric, with_nvlink_domain, with_rack

_MOST_PLACES = 6
"""Places tried, those that lack fewest machines first."""


@dataclass(frozen=True)
class Label:
    """One level at which machines are grouped, and how a machine is told to be in a place of it."""

    code: Code
    level: Level
    rules: tuple[Rule, ...]
    """Refuse machines whose place is not known."""
    unknown: Callable[[Case], Bools]
    """(machines,): the label is missing, and setting it would count."""
    names: Callable[[Topology], tuple[str, ...]]
    places: Callable[[Topology], Longs]
    """Rows of `names` that may be given."""
    set: Callable[[Topology, Longs, Longs], Topology]


def _fabric_unknown(case: Case) -> Bools:
    """Machines with an InfiniBand port that would count, none of whose InfiniBand ports is on a known fabric."""
    ports, size = case.ask.topology.ports, case.ask.topology.size
    infiniband = ports.link == INFINIBAND
    fast = ports.gbps >= (case.ask.min_gbps if case.ask.kinds else 0)
    would = np.bincount(owners(ports)[infiniband & ports.up & fast], minlength=size) > 0
    known = np.bincount(owners(ports)[infiniband & (ports.fabric != UNKNOWN)], minlength=size) > 0
    return np.asarray(would & ~known)


def _set_fabric(topology: Topology, machines: Longs, fabrics: Longs) -> Topology:
    """The label speaks for all InfiniBand ports of a machine."""
    for machine, fabric in zip(machines.tolist(), fabrics.tolist(), strict=True):
        rows = ports_at(topology.ports, np.array([machine]))[1]
        topology = with_fabric(topology, rows[topology.ports.link[rows] == INFINIBAND], fabric)
    return topology


def _fabrics(topology: Topology) -> Longs:
    fabrics = topology.fabrics
    return np.flatnonzero(fabrics.named & ~fabrics.storage & (fabrics.link == INFINIBAND))


LABELS = (
    Label(
        Code.SET_FABRIC,
        "fabric",
        (Rule.PORT_NO_FABRIC, Rule.NO_FABRIC),
        _fabric_unknown,
        lambda topology: topology.fabrics.names,
        _fabrics,
        _set_fabric,
    ),
    Label(
        Code.SET_RACK,
        "rack",
        (Rule.NO_RACK,),
        lambda case: np.asarray(case.ask.topology.rack == UNKNOWN),
        lambda topology: topology.racks,
        lambda topology: np.arange(len(topology.racks)),
        with_rack,
    ),
    Label(
        Code.SET_NVLINK_DOMAIN,
        "nvlink_domain",
        (Rule.NO_NVLINK_DOMAIN,),
        lambda case: np.asarray(case.ask.topology.nvlink_domain == UNKNOWN),
        lambda topology: topology.nvlink_domains,
        lambda topology: np.arange(len(topology.nvlink_domains)),
        with_nvlink_domain,
    ),
)


def offers(label: Label, bench: Bench, case: Case) -> Iterator[WhatIf]:
    """The label on as few machines as the place lacks."""
    usable = case.outcome.usable
    if not any(rule in case.outcome.refused for rule in label.rules):
        return
    waiting = case.outcome.usable_but_for(label.rules) & ~usable
    if not waiting.any():
        return
    waiting &= label.unknown(case)
    for machines, places in _assignments(label, case, waiting):
        offer = _try(label, bench, case, machines, places)
        if offer is not None:
            yield offer
            return


def _try(label: Label, bench: Bench, case: Case, machines: Longs, places: Longs) -> WhatIf | None:
    topology = case.ask.topology
    names = label.names(topology)
    targets = [
        {"machine": topology.names[machine], "value": names[place]}
        for machine, place in zip(machines.tolist(), places.tolist(), strict=True)
    ]
    labelled: Snapshot = replace(case.snapshot, topology=label.set(topology, machines, places))
    return bench.attempt(case, Change(label.code, {"targets": targets}), snapshot=labelled)


def _assignments(label: Label, case: Case, waiting: Bools) -> Iterator[tuple[Longs, Longs]]:
    """Machines to label and their places, the fewest machines first."""
    levels = must_share(case.ask, case.shape)
    slots = room(case.ask, case.shape, case.outcome.usable)
    if label.level in levels:
        yield from _filling(label, case, slots, waiting)
        return
    places = label.places(case.ask.topology)
    lacking = case.shape.machines - int(slots.counts.max(initial=0))
    if case.group.spread == label.level:
        places = np.setdiff1d(places, _taken(label, case))
    elif lacking == 1:
        places = places[:1]
    machines = np.flatnonzero(waiting)[:lacking]
    if 0 < machines.size == lacking <= places.size:
        yield machines, places[:lacking]


def _taken(label: Label, case: Case) -> Ints:
    """Places in which some machine is usable already: another one there does not spread the gang further."""
    topology, usable = case.ask.topology, case.outcome.usable
    return np.unique((topology.rack if label.level == "rack" else topology.home_fabric)[usable])


def _filling(label: Label, case: Case, slots: Slots, waiting: Bools) -> Iterator[tuple[Longs, Longs]]:
    """For each place with some room, the machines that would fill it and stand right otherwise."""
    ask, levels = case.ask, must_share(case.ask, case.shape)
    others = levels - {label.level}
    rest = slots_of(ask, others, ask.kinds if "fabric" in others else (), waiting)
    machine, domain = rest.grouping.machine[rest.rows], rest.grouping.domain[rest.rows]
    allowed = label.places(ask.topology)
    lacking = case.shape.machines - slots.counts
    order = np.lexsort((np.arange(lacking.size), lacking))
    begun = [number for number in order.tolist() if slots.counts[number] > 0]
    for number in begun[:_MOST_PLACES]:
        stands = _columns(slots, number)
        place = stands[label.level]
        fits = np.ones(machine.size, dtype=np.bool_)
        for level in others:
            fits &= getattr(rest.grouping, level)[domain] == stands[level]
        chosen = np.unique(machine[fits])[: lacking[number]].astype(np.int64)
        if chosen.size == lacking[number] and place in allowed:
            yield chosen, np.full(chosen.size, place)


def _columns(slots: Slots, domain: int) -> Mapping[Level, int]:
    grouping = slots.grouping
    return {
        "fabric": int(grouping.fabric[domain]),
        "rack": int(grouping.rack[domain]),
        "nvlink_domain": int(grouping.nvlink_domain[domain]),
    }
