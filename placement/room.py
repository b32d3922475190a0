"""Room for a gang that is refused: the domains that must hold it, and what each offers."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from placement.arrays import UNKNOWN, Bools
from placement.ask import Ask
from placement.domains import Slots, counts_for, slots_of
from placement.request import Level
from placement.shapes import Shape
from placement.topology import Grouping, Topology

DomainKind = Literal["cluster", "fabric", "rack", "nvlink_domain"]


def must_share(ask: Ask, shape: Shape) -> frozenset[Level]:
    """The levels that all machines must share whatever the verdict: the room that a refused gang lacks."""
    if shape.machines == 1:
        return frozenset()
    levels: set[Level] = {ask.group.keep_within} if ask.group.keep_within else set()
    if ask.kinds:
        levels.add("fabric")
    if ask.group.interconnect == "nvlink":
        levels.add("nvlink_domain")
    return frozenset(levels)


def lacking_level(levels: frozenset[Level]) -> Level | None:
    """The level that a refusal is told about: the narrowest of those that must be shared."""
    order: tuple[Level, ...] = ("nvlink_domain", "rack", "fabric")
    return next((level for level in order if level in levels), None)


def room(ask: Ask, shape: Shape, usable: Bools, *, spread: bool = True) -> Slots:
    """The slots in the domains that must hold the gang."""
    links = ask.kinds if shape.machines > 1 else ()
    return slots_of(ask, must_share(ask, shape), links, usable, every=not spread)


def has_room(ask: Ask, shape: Shape, usable: Bools) -> bool:
    """Whether some domain that may hold the gang has enough of these machines: exactly when a search would find one."""
    if np.count_nonzero(usable) < shape.machines:
        return False
    return bool((room(ask, shape, usable).counts >= shape.machines).any())


@dataclass(frozen=True, slots=True)
class DomainCount:
    """What one domain offers to the gang: slots are machines that pass every rule."""

    kind: DomainKind
    name: str
    on_fabric: str | None
    """For a rack of an RDMA placement: the fabric whose ports count."""
    found: int
    needed: int
    machines: tuple[str, ...]
    """The machines found, by name."""


def domain_counts(
    ask: Ask, shape: Shape, slots: Slots, *, most: int, most_names: int | None = None
) -> tuple[DomainCount, ...]:
    """What the best domains offer (at most so many, with at most so many machine names), most first, then by name."""
    grouping, level = slots.grouping, lacking_level(must_share(ask, shape))
    domains = np.flatnonzero(counts_for(ask, grouping, ask.kinds))
    domains = domains[np.argsort(-slots.counts[domains], kind="stable")[:most]]
    found = slots.counts[domains].tolist()
    first = np.searchsorted(grouping.domain[slots.rows], domains).tolist()
    return tuple(
        DomainCount(
            kind=level or "cluster",
            name=_domain_name(ask.topology, grouping, level, domain),
            on_fabric=_fabric_name(ask.topology, grouping, domain) if level != "fabric" else None,
            found=count,
            needed=shape.machines,
            machines=tuple(
                ask.topology.names[machine]
                for machine in grouping.machine[slots.rows[start : start + count][:most_names]].tolist()
            ),
        )
        for domain, count, start in zip(domains.tolist(), found, first, strict=True)
    )


def domains_in_all(ask: Ask, slots: Slots) -> int:
    """How many domains there are to be told about."""
    return int(np.count_nonzero(counts_for(ask, slots.grouping, ask.kinds)))


def _domain_name(topology: Topology, grouping: Grouping, level: Level | None, domain: int) -> str:
    match level:
        case "nvlink_domain":
            return topology.nvlink_domains[int(grouping.nvlink_domain[domain])]
        case "rack":
            return topology.racks[int(grouping.rack[domain])]
        case "fabric":
            return topology.fabrics.names[int(grouping.fabric[domain])]
        case None:
            return ""


def _fabric_name(topology: Topology, grouping: Grouping, domain: int) -> str | None:
    row = int(grouping.fabric[domain])
    return None if row == UNKNOWN else topology.fabrics.names[row]
