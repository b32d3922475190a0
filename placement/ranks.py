"""From machines to workers: rank order, GPUs, cores, memory and the RDMA ports of each."""

from collections.abc import Sequence
from functools import partial
from itertools import count, pairwise, repeat, starmap

import numpy as np

from placement.arrays import UNKNOWN, Ints, Longs
from placement.ask import Ask
from placement.gpus import gpu_slots
from placement.outcome import GroupPlacement, Rank, Transport
from placement.rules import MachineOutcome
from placement.search import Found
from placement.topology import INFINIBAND, Topology, ports_at
from placement.verdicts import Verdict

PORTS_USED = "ports_used"
"""What is remembered of a topology under this name follows from its ports."""


def in_rank_order(topology: Topology, machines: Longs) -> Longs:
    """Neighbours get neighbouring ranks: by fabric, rack, NVLink domain, the one with most workers first, then name."""
    if machines.size == 1:
        return machines
    keys: list[Ints | Longs] = []
    inside = np.zeros(machines.size, dtype=np.int64)
    for place in (topology.home_fabric, topology.own_rack, topology.nvlink_domain):
        where = place[machines]
        if (where != where[0]).any():
            # What counts of a rack is what stands on the same fabric: a rack may have machines on two. 64 bits hold
            # three places of a million each.
            inside = inside * (int(where.max()) + 2) + where
            ordered = np.sort(inside)
            keys += [np.searchsorted(ordered, inside) - np.searchsorted(ordered, inside, side="right"), where]
    return np.asarray(machines[np.lexsort((machines, *reversed(keys)))])


def workers_of(ask: Ask, found: Found, machines: Longs, first_rank: int) -> tuple[Rank, ...]:
    """The group's workers on its machines, given in rank order; ranks from `first_rank` on."""
    topology, shape = ask.topology, found.shape
    slots = gpu_slots(ask, machines, shape.gpus)
    rows, every = machines[:, None], machines.tolist()
    return tuple(
        starmap(
            Rank,
            zip(
                count(first_rank),
                repeat(ask.index),
                every,
                topology.ids[machines].tolist(),
                [topology.names[machine] for machine in every],
                map(tuple, topology.gpu_index[rows, slots].tolist()),
                map(tuple, topology.gpu_id[rows, slots].tolist()),
                _each(ask.cpu_needed(shape.gpus), machines),
                _each(ask.memory_needed(shape.gpus), machines),
                ports_of(ask, every, found.fabric),
                strict=False,  # the first two have no end
            ),
        )
    )


def _each(amount: "int | Longs", machines: Longs) -> list[int]:
    """Per machine what its worker gets of an amount that is one for all or each machine's own."""
    if isinstance(amount, int):
        return [amount] * machines.size
    shares: list[int] = amount[machines].tolist()
    return shares


def ports_of(ask: Ask, machines: Sequence[int], fabric: int) -> list[tuple[str, ...]]:
    """Per machine the ports for NCCL_IB_HCA on this fabric: looked up once for each machine, as long as ports stay."""
    if fabric == UNKNOWN:
        return [()] * len(machines)
    known: dict[int, tuple[str, ...]] = ask.topology.remember((PORTS_USED, fabric, ask.min_gbps), dict)
    new = [machine for machine in machines if machine not in known]
    if new:
        known.update(zip(new, _ports_of(ask, np.array(new), fabric), strict=True))
    return [known[machine] for machine in machines]


def _ports_of(ask: Ask, machines: Longs, fabric: int) -> list[tuple[str, ...]]:
    """Those that are up, on this fabric and at least `min_gbps`; without `min_gbps` the machine's fastest class of
    such ports."""
    ports = ask.topology.ports
    owner, rows = ports_at(ports, machines)
    fits = ports.up[rows] & (ports.fabric[rows] == fabric) & (ports.gbps[rows] >= ask.min_gbps)
    rows, owner = rows[fits], owner[fits]
    if not ask.group.min_gbps:
        fastest = np.zeros(machines.size, dtype=np.int32)
        np.maximum.at(fastest, owner, ports.gbps[rows])
        same = ports.gbps[rows] == fastest[owner]
        rows, owner = rows[same], owner[same]
    names = [ports.names[row] for row in rows.tolist()]
    bounds = np.searchsorted(owner, np.arange(machines.size + 1)).tolist()
    return [tuple(names[first:last]) for first, last in pairwise(bounds)]


def group_placement(ask: Ask, found: Found, outcome: MachineOutcome, first_rank: int) -> GroupPlacement:
    """Everything that is told about the group's place."""
    topology = ask.topology
    machines = in_rank_order(topology, found.machines)
    return GroupPlacement(
        name=ask.group.name,
        verdict=found.verdict,
        transport=_transport(ask, found),
        shape=found.shape,
        fabric=None if found.fabric == UNKNOWN else topology.fabrics.names[found.fabric],
        rack=_shared(topology.racks, topology.rack, found.machines),
        nvlink_domain=_shared(topology.nvlink_domains, topology.nvlink_domain, found.machines),
        machines=machines,
        outcome=outcome,
        workers=partial(workers_of, ask, found, machines, first_rank),
    )


def _transport(ask: Ask, found: Found) -> Transport:
    if found.fabric != UNKNOWN:
        return "infiniband" if ask.topology.fabrics.link[found.fabric] == INFINIBAND else "roce"
    if found.verdict is Verdict.NVLINK_DOMAIN:
        return "nvlink"
    if found.verdict is Verdict.ETHERNET or ask.group.interconnect == "ethernet":
        return "ethernet"
    return "none"


def _shared(names: tuple[str, ...], place: Ints, machines: Longs) -> str | None:
    """The name of the place where all these machines stand, if it is one."""
    first = int(place[machines[0]])
    return names[first] if first != UNKNOWN and bool((place[machines] == first).all()) else None
