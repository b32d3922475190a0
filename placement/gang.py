"""Several groups that start as one gang: no two workers share a machine, so groups may stand in each other's way.

First the groups are placed one after the other. When one finds its machines taken, or only a worse network left than it
could have had, combinations of what each may do (verdict, shape, domain; best first) are tried, each decided exactly by
a maximum flow, so that a gang is refused only when no combination holds it. The number of combinations looked at is
bounded: a gang of many groups over hundreds of nearly full domains waits rather than stopping the pass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from placement.arrays import UNKNOWN, Bools, Ints, Longs
from placement.ask import Ask
from placement.flow import Supply, share_out
from placement.search import Found, Judgement, fabric_of_one, options, search, slots_under
from placement.shapes import Shape
from placement.verdicts import RDMA_VERDICTS, Verdict

_CLOSED = -2
"""Place of a machine that a group cannot use; UNKNOWN is a place too."""

MOST_LOOKS = 2_000_000
"""Machines looked at, in all combinations together, before the gang is told to wait: well under a second."""


@dataclass(frozen=True)
class Option:
    """One way to place one group: these machines are open to it, so many are needed."""

    verdict: Verdict
    shape: Shape
    fabric: int
    open: Bools
    """(machines,): usable for the group and in this option's domain."""
    place: Ints | None
    """(machines,): with `spread`, the rack or fabric of which each worker needs another; else None."""


def search_together(judgements: Sequence[Judgement], alone: Sequence[Found]) -> Sequence[Found] | None:
    """A place for every group, in the request's order, or None. `alone`: the one that each would have by itself.

    Among all ways the worst network of any group is as good as can be: what one group takes first may leave another
    a worse one than both could have had.
    """
    if len(alone) == 1:
        return alone
    greedy = _one_after_the_other(judgements)
    reached = max(found.verdict for found in greedy) if greedy else None
    best = max(found.verdict for found in alone)  # no group does better beside others than alone
    for verdict in [verdict for verdict in Verdict if verdict >= best]:
        if reached is not None and verdict >= reached:
            break
        if better := _combined(judgements, verdict):
            return better
    return greedy


def _one_after_the_other(judgements: Sequence[Judgement]) -> list[Found] | None:
    """Greedy, the group with the least choice first."""
    founds: dict[int, Found] = {}
    taken = np.zeros(judgements[0].ask.topology.size, dtype=np.bool_)
    for index in sorted(range(len(judgements)), key=lambda number: _choice(judgements[number])):
        found = search(judgements[index], taken)
        if found is None:
            return None
        founds[index] = found
        taken[found.machines] = True
    return [founds[index] for index in range(len(judgements))]


def _choice(judgement: Judgement) -> float:
    """Usable machines for each one needed, in the shape that has most."""
    return max(
        np.count_nonzero(judgement.usable(shape, None)) / shape.machines for shape in judgement.ask.shapes
    )


def _combined(judgements: Sequence[Judgement], worst: Verdict) -> list[Found] | None:
    """Depth first over the groups' options up to this verdict, best first; a branch ends when those chosen collide."""
    choices = [[one for one in _options(judgement) if one.verdict <= worst] for judgement in judgements]
    if not all(choices) or _shares([_any_of(options_) for options_ in choices]) is None:
        return None
    budget = [MOST_LOOKS // judgements[0].ask.topology.size]

    def descend(chosen: list[Option]) -> list[Found] | None:
        if len(chosen) == len(choices):
            return _assign(judgements, chosen)
        for option in choices[len(chosen)]:
            budget[0] -= 1
            if budget[0] < 0:
                return None
            if _shares([*chosen, option]) is not None:
                found = descend([*chosen, option])
                if found is not None:
                    return found
        return None

    return descend([])


def _options(judgement: Judgement) -> Iterator[Option]:
    """Every domain with enough room for the group alone, in the order in which it would like them."""
    ask = judgement.ask
    spread = {"rack": ask.topology.own_rack, "fabric": ask.topology.home_fabric}
    place = spread.get(ask.group.spread or "")
    for verdict, shape in options(ask):
        usable = judgement.usable(shape, None)
        if verdict is Verdict.ONE_MACHINE:
            if usable.any():
                yield Option(verdict, shape, UNKNOWN, usable, place)
            continue
        counted = slots_under(ask, verdict, usable)
        every = slots_under(ask, verdict, usable, every=True)
        for domain in np.flatnonzero(counted.counts >= shape.machines):
            inside = np.zeros_like(usable)
            inside[every.grouping.machine[every.rows[every.grouping.domain[every.rows] == domain]]] = True
            fabric = int(every.grouping.fabric[domain]) if verdict in RDMA_VERDICTS else UNKNOWN
            yield Option(verdict, shape, fabric, inside, place)


def _any_of(alternatives: Sequence[Option]) -> Option:
    """All of a group's options at once, fewest machines and no spread: when even these collide, everything does."""
    first = min(alternatives, key=lambda option: option.shape.machines)
    anywhere = np.logical_or.reduce([option.open for option in alternatives])
    return Option(first.verdict, first.shape, UNKNOWN, anywhere, None)


def _supplies(chosen: Sequence[Option]) -> tuple[list[Supply], list[Longs]]:
    """Machines that mean the same to every group are one supply; beside each, the machines in it, by name."""
    columns = [np.where(option.open, _place(option), _CLOSED) for option in chosen]
    open_ = np.flatnonzero(np.logical_or.reduce([option.open for option in chosen]))
    kind = np.zeros(open_.size, dtype=np.int64)
    for column in columns:
        # Numbered anew after each column, so that the number never outgrows its 64 bits.
        kind = np.unique(kind * (column.max() + 3) + column[open_] + 2, return_inverse=True)[1]
    members = np.split(open_[np.argsort(kind, kind="stable")], np.cumsum(np.bincount(kind))[:-1])
    supplies = [
        Supply(int(machines.size), tuple(_place_told(int(column[machines[0]])) for column in columns))
        for machines in members
    ]
    return supplies, members


def _place_told(place: int) -> int | None:
    return None if place == _CLOSED else place


def _place(option: Option) -> Ints:
    return np.full(option.open.size, UNKNOWN, dtype=np.int32) if option.place is None else option.place


def _shares(chosen: Sequence[Option]) -> tuple[list[Longs], list[list[int]]] | None:
    """How many machines of each supply every group gets, or None when the groups collide."""
    supplies, members = _supplies(chosen)
    needed = [option.shape.machines for option in chosen]
    spread = [option.place is not None for option in chosen]
    shares = share_out(supplies, needed, spread)
    return None if shares is None else (members, shares)


def _assign(judgements: Sequence[Judgement], chosen: Sequence[Option]) -> list[Found] | None:
    """Actual machines for a combination that fits: from each supply the first by name, group after group."""
    fit = _shares(chosen)
    if fit is None:
        return None
    members, shares = fit
    machines: list[list[Longs]] = [[] for _ in chosen]
    for supply, share in zip(members, shares, strict=True):
        used = 0
        for group, count in enumerate(share):
            machines[group].append(supply[used : used + count])
            used += count
    return [
        _found(judgement.ask, option, np.concatenate(parts))
        for judgement, option, parts in zip(judgements, chosen, machines, strict=True)
    ]


def _found(ask: Ask, option: Option, machines: Longs) -> Found:
    """A group on one machine is told its fabric by the machine that it got: there is no domain that would."""
    alone = option.verdict is Verdict.ONE_MACHINE
    fabric = fabric_of_one(ask, int(machines[0])) if alone else option.fabric
    return Found(option.verdict, option.shape, machines, fabric)
