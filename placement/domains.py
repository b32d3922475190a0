"""Slots, domains and the choice between them.

One worker of a run per machine, so a slot is a machine that passes every rule, and a domain has as many slots as such
machines (with `spread`: as many as different racks or fabrics among them).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from placement.arrays import UNKNOWN, Bools, Ints, Longs, lengths, starts
from placement.ask import Ask
from placement.request import Level
from placement.shapes import Shape
from placement.topology import INFINIBAND, ROCE, Grouping, Topology

WIDTHS = {
    "lemon": 8,
    "broken": 1,
    "left_over": 10,
    "filler": 12,
    "suspects": 8,
    "without_image": 1,
    "machine": 22,
}
"""The order of preference between machines of one domain, most significant first, and the bits each part may use."""

_BELOW = {name: sum(islice(WIDTHS.values(), number + 1, None)) for number, name in enumerate(WIDTHS)}
"""Bits of all that is less significant."""


@dataclass(frozen=True)
class Slots:
    """The usable rows of a grouping and what each domain offers."""

    grouping: Grouping
    rows: Longs
    """Rows of the grouping whose machine can take a worker there."""
    counts: Longs
    """(domains,): workers of this gang that the domain could take."""


@dataclass(frozen=True)
class Preference:
    """The usable machines, best first; costs are by position."""

    machines: Longs
    position: Ints
    """(all machines,): place in `machines`; only set for usable ones."""
    broken: Longs
    left_over: Longs
    suspects: Longs


def slots_of(
    ask: Ask,
    levels: Iterable[Level],
    links: tuple[int, ...],
    usable: Bools,
    position: Ints | None = None,
    *,
    every: bool = False,
) -> Slots:
    """Slots in the domains of these levels. `links`: the members' ports there must be of one of these link layers and
    fast enough; without, any port that is up tells that a machine is on a fabric.

    With `spread` one machine per place is kept: the one of smallest `position`, else the first by name; with `every`
    all are kept.
    """
    grouping = ask.topology.grouping(levels)
    rows = np.flatnonzero(usable.take(grouping.machine))
    if grouping.gbps is not None:
        fast = grouping.gbps[rows] >= (ask.min_gbps if links else 0)
        rows = rows[fast & counts_for(ask, grouping, links)[grouping.domain[rows]]]
    if not every:
        rows = _one_per_place(ask, grouping, rows, position)
    return Slots(grouping, rows, np.bincount(grouping.domain[rows], minlength=grouping.domains))


def counts_for(ask: Ask, grouping: Grouping, links: tuple[int, ...]) -> Bools:
    """(domains,): domains on a fabric of these link layers, and with a name where the gang must keep within it."""
    if grouping.gbps is None:
        return np.ones(grouping.domains, dtype=np.bool_)
    fabrics, named = ask.topology.fabrics, ask.group.keep_within == "fabric"

    def counts() -> Bools:
        fits = np.isin(fabrics.link, links or (INFINIBAND, ROCE)) & (fabrics.named | (not named))
        return np.asarray(fits)

    return np.asarray(ask.topology.remember(("fabrics", links, named), counts)[grouping.fabric])


def _one_per_place(ask: Ask, grouping: Grouping, rows: Longs, position: Ints | None) -> Longs:
    if ask.group.spread not in ("rack", "fabric"):
        return rows
    topology = ask.topology
    machine = grouping.machine[rows]
    place = (topology.rack if ask.group.spread == "rack" else topology.home_fabric)[machine]
    order = np.lexsort((machine if position is None else position[machine], place, grouping.domain[rows]))
    first = starts(grouping.domain[rows][order], place[order])
    return np.asarray(rows[order[first]])


def preference(ask: Ask, shape: Shape, usable: Bools) -> Preference:
    """Order the usable machines by `WIDTHS`: started before whole ones, healthy before suspect, at last by name."""
    key = _keys(ask, shape, usable)
    key.sort()
    ordered = _part(key, "machine")
    position = np.empty(ask.topology.size, dtype=np.int32)
    position[ordered] = np.arange(ordered.size)
    return Preference(
        ordered, position, _part(key, "broken"), _part(key, "left_over"), _part(key, "suspects")
    )


def first_choice(ask: Ask, shape: Shape, usable: Bools) -> Longs:
    """(1,): the machine that `preference` puts first; there must be one."""
    return _part(_keys(ask, shape, usable).min(keepdims=True), "machine")


def _keys(ask: Ask, shape: Shape, usable: Bools) -> Longs:
    """Per usable machine the number by which it is compared; see `WIDTHS`."""
    machines = np.flatnonzero(usable)
    snapshot, topology = ask.snapshot, ask.topology
    whole, left_over = snapshot.whole[machines], snapshot.gpus_free[machines] - shape.gpus
    broken = whole & (left_over > 0)
    # What is usable with `healthy_only` has healthy ones enough.
    healthy_only = ask.group.healthy_only
    suspects = 0 if healthy_only else np.maximum(shape.gpus - ask.gpus.healthy_where_fitting[machines], 0)
    if shape.gpus:
        filler = _whole_in_rack(topology, machines, whole)
    else:
        filler = (snapshot.cpu_free[machines] - ask.cpu_needed(0)) // 1000
    return _pack(
        lemon=_tier(ask, machines),
        broken=broken,
        left_over=left_over,
        filler=filler,
        suspects=suspects,
        without_image=_without_image(ask, machines),
        machine=machines,
    )


def _whole_in_rack(topology: Topology, machines: Longs, whole: Bools) -> Longs:
    """Per machine, how many of these in its rack are wholly free; one without a rack is in one of its own."""
    rack = topology.rack[machines]
    counts = np.bincount(rack[whole] + 1, minlength=len(topology.racks) + 1)
    return np.where(rack == UNKNOWN, whole, counts[rack + 1])


def _part(keys: Longs, name: str) -> Longs:
    """What `_pack` was given under this name, in the order of the keys; at most what its bits hold."""
    return (keys >> _BELOW[name]) & ((1 << WIDTHS[name]) - 1)


def _pack(**parts: "npt.NDArray[np.integer | np.bool_] | int") -> Longs:
    """One sortable number per machine; a part that outgrows its bits counts as its largest value."""
    key: Longs = np.zeros(1, dtype=np.int64)
    for name, part in parts.items():
        if isinstance(part, np.ndarray):
            key = key | np.minimum(part, (1 << WIDTHS[name]) - 1, dtype=np.int64) << _BELOW[name]
        elif part:
            key = key | min(part, (1 << WIDTHS[name]) - 1) << _BELOW[name]
    return key


def _tier(ask: Ask, machines: Longs) -> "Longs | int":
    """Rank of each machine's lemon score among those that occur."""
    if ask.lemons is None:
        return 0
    scores = ask.lemons[machines]
    avoided = np.flatnonzero(scores)
    if not avoided.size:
        return 0
    tier = np.zeros(machines.size, dtype=np.int64)
    tier[avoided] = np.unique(scores[avoided], return_inverse=True)[1] + 1
    return tier


def _without_image(ask: Ask, machines: Longs) -> "Bools | int":
    if not ask.request.prefer:
        return 0

    def lacking() -> Bools:
        without = np.ones(ask.topology.size, dtype=np.bool_)
        without[ask.topology.rows_named(ask.request.prefer)] = False
        return without

    without = ask.topology.remember(("without_image", ask.request.prefer), lacking, passing=True)
    return np.asarray(without[machines])


def choose(shape: Shape, slots: Slots, liked: Preference, *, spread: bool) -> tuple[Longs, int]:
    """The machines to use and their domain. Some domain of `slots` must have room.

    First choice is a domain within which one rack is enough (with `spread`, racks play no part); among those the one
    where the best machines leave the least broken and left over, then the one that is filled up most, then by name.
    """
    grouping, rows, needed = slots.grouping, slots.rows, shape.machines
    part = grouping.domain[rows] if spread else grouping.part[rows]
    parts = grouping.domains if spread else grouping.domain_of.size
    counts = np.bincount(part, minlength=parts)
    if (counts >= needed).any():
        best, chosen = _tightest(grouping, rows, part, counts, counts >= needed, needed, liked)
        return chosen, best if spread else int(grouping.domain_of[best])
    return _across_racks(slots, counts, needed, liked)


def _tightest(
    grouping: Grouping,
    rows: Longs,
    part: Ints,
    counts: Longs,
    candidates: Bools,
    needed: int,
    liked: Preference,
) -> tuple[int, Longs]:
    """The best of the candidate parts, and its best machines. `counts`: (parts,), the rows in each."""
    inside = np.flatnonzero(candidates[part])
    ordered = (part[inside].astype(np.int64) << 24) | liked.position[grouping.machine[rows[inside]]]
    ordered.sort()
    rivals = np.flatnonzero(candidates)
    size = counts[rivals]
    first = np.cumsum(size) - size
    top = ordered[first[:, None] + np.arange(needed)] & 0xFFFFFF
    best = _narrow(rivals.size, _costs(liked, top, size))
    return int(rivals[best]), liked.machines[top[best]]


def _costs(liked: Preference, top: Longs, size: Longs) -> Iterator[Longs]:
    """What the parts are compared by, one after the other. `top`: (parts, needed), the positions of their best."""
    yield liked.broken[top].sum(axis=1)
    yield liked.left_over[top].sum(axis=1)
    yield size
    yield liked.suspects[top].sum(axis=1)


def _narrow(size: int, costs: Iterable[Longs]) -> int:
    """Of so many, the one that is smallest in the first cost, among equals in the second, and so on; at last the
    first."""
    left = np.arange(size)
    for cost in costs:
        values = cost[left]
        left = left[values == values.min()]
        if left.size == 1:
            break
    return int(left[0])


def _across_racks(slots: Slots, counts: Longs, needed: int, liked: Preference) -> tuple[Longs, int]:
    """No rack is enough: the domain that needs fewest; its fullest racks whole, the rest where it fits tightest."""
    grouping, rows = slots.grouping, slots.rows
    feasible = slots.counts >= needed
    racks = _racks_needed(grouping, counts, feasible, needed)
    candidates = feasible & (racks == racks[feasible].min())
    domain, _ = _tightest(grouping, rows, grouping.domain[rows], slots.counts, candidates, needed, liked)
    inside = rows[grouping.domain[rows] == domain]
    ordered = (grouping.part[inside].astype(np.int64) << 24) | liked.position[grouping.machine[inside]]
    ordered.sort()
    part, position = ordered >> 24, ordered & 0xFFFFFF
    start = starts(part)
    size = lengths(start, part.size)
    taken = _taken_of_racks(size, position[start], needed, int(racks[domain]))
    within = np.arange(part.size) - np.repeat(start, size)
    return liked.machines[position[within < np.repeat(taken, size)]], domain


def _taken_of_racks(size: Longs, first: Longs, needed: int, racks: int) -> Longs:
    """(racks,): how many machines are used of each, in so many racks. `size`, `first`: how many there are, and the
    position of the best."""
    fullest = np.lexsort((first, -size))
    whole, others = fullest[: racks - 1], fullest[racks - 1 :]
    taken = np.zeros_like(size)
    taken[whole] = size[whole]
    rest = needed - int(taken.sum())
    others = others[size[others] >= rest]
    taken[others[np.lexsort((first[others], size[others]))[0]]] = rest
    return taken


def _racks_needed(grouping: Grouping, counts: Longs, feasible: Bools, needed: int) -> Longs:
    """(domains,): how many racks the gang needs at least; only meaningful for feasible domains."""
    parts = np.flatnonzero((counts > 0) & feasible[grouping.domain_of])
    domain, count = grouping.domain_of[parts].astype(np.int64), counts[parts]
    ordered = np.sort((domain << 32) | (needed - count))
    domain, count = ordered >> 32, needed - (ordered & 0xFFFFFFFF)
    running = np.cumsum(count)
    first = starts(domain)
    before = np.repeat(running[first] - count[first], lengths(first, domain.size))
    short = domain[running - before < needed]
    return np.asarray(np.bincount(short, minlength=grouping.domains) + 1)
