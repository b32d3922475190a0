"""Runs that hold what is missing: the gang would be placed once one of them, or two together, had ended."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from placement.arrays import Bools, Ints, Longs, lengths, starts
from placement.domains import slots_of
from placement.freeing import Whereabouts
from placement.room import must_share, room
from placement.rules import Rule
from placement.shapes import Shape
from placement.snapshot import Snapshot
from placement.whatif.bench import Bench, Case
from placement.whatif.changes import Change, Code, Named, WhatIf

HELD_BY_RUNS = (Rule.GPUS_BUSY, Rule.CPU_SHORT, Rule.MEMORY_SHORT, Rule.GPUS_SUSPECT)
"""Rules that a run's end may lift. Suspect GPUs are among them: healthy ones beside them may be held."""

_MOST_OFFERED = 3
_MOST_TRIED = 10
"""Runs, or pairs of runs, tried for one request, those that lose least first."""
_MOST_IN_DOMAIN = 4
"""Runs of one domain that are paired with each other, those that free most machines."""


@dataclass
class Holders:
    """What every run holds, as columns over all holds on known machines; looked up once for many requests."""

    snapshot: Snapshot
    holdings: Sequence[Named]
    known: Whereabouts | None = None
    """Theirs, in that order, for one who has it already."""

    @cached_property
    def where(self) -> Whereabouts:
        """A run is told by its place in `holdings`."""
        return self.known or Whereabouts.of(
            self.snapshot.topology, [named.holding for named in self.holdings]
        )

    def gpus(self, run: int) -> int:
        """GPUs held: what is lost when it is stopped."""
        return sum(len(hold.gpus) for hold in self.holdings[run].holding.holds)

    def by_cost(self, runs: Iterable[int]) -> list[int]:
        """In the order in which they are offered: preemptible ones first, then the fewest GPUs."""

        def cost(run: int) -> tuple[bool, int, int, int]:
            named = self.holdings[run]
            return (not named.preemptible, self.gpus(run), named.holding.key, run)

        return sorted(runs, key=cost)

    def end(self, bench: Bench, case: Case, runs: Sequence[int]) -> WhatIf | None:
        """The offer once these have ended."""
        ended = [self.holdings[number] for number in runs]
        snapshot = case.snapshot.released(hold for named in ended for hold in named.holding.holds)
        numbers = {"runs": [self._told(number) for number in runs]}
        return bench.attempt(case, Change(Code.END_RUN, numbers), snapshot=snapshot)

    def _told(self, number: int) -> dict[str, Any]:
        named = self.holdings[number]
        return {
            "key": named.holding.key,
            "name": named.name,
            "preemptible": named.preemptible,
            "gpus": self.gpus(number),
            "ends_at": named.holding.ends_at,
        }


@dataclass
class _Freed:
    """What each run's end would free for one group in one shape.

    A run is taken to hold the GPUs of a machine that count before those that do not (faulty, suspect, of another kind):
    that is exact where a machine has one holder, and never hides a run. What is offered the engine decides.
    """

    holders: Holders
    case: Case
    shape: Shape

    @cached_property
    def nearly(self) -> Bools:
        """(machines,): refused by nothing that a run's end cannot lift, and not usable yet."""
        outcome = self.case.judgement.outcome(self.shape)
        return np.asarray(outcome.usable_but_for(HELD_BY_RUNS) & ~outcome.usable)

    def holds_on(self, machines: Bools) -> Longs:
        """Holds on these machines."""
        return np.flatnonzero(machines[self.holders.where.row])

    def enough(self, rows: Longs, *holds: Longs) -> Bools:
        """Whether the ends of these holds on these machines leave enough for a worker there."""
        ask, snapshot, where, needed = self.case.ask, self.case.snapshot, self.holders.where, self.shape.gpus
        size = ask.topology.size
        gpus, cpu, memory = (
            sum(each[hold] for hold in holds) for each in (where.gpus, where.cpu, where.memory)
        )
        fits = self._free[rows] + np.minimum(gpus, self._held[rows]) >= needed
        fits &= snapshot.cpu_free[rows] + cpu >= np.broadcast_to(ask.cpu_needed(needed), size)[rows]
        fits &= snapshot.memory_free[rows] + memory >= np.broadcast_to(ask.memory_needed(needed), size)[rows]
        return np.asarray(fits)

    @cached_property
    def _free(self) -> Ints:
        gpus = self.case.ask.gpus
        return gpus.free_healthy if self.case.group.healthy_only else gpus.free

    @cached_property
    def _held(self) -> Ints:
        """(machines,): GPUs that count and are held."""
        gpus = self.case.ask.gpus
        if not self.case.group.healthy_only:
            return gpus.held
        return np.asarray(gpus.fitting - gpus.faulty - gpus.suspect - gpus.free_healthy)

    @cached_property
    def alone(self) -> tuple[Longs, Longs]:
        """Runs and machines: the run's end alone makes the machine usable."""
        holds = self.holds_on(self.nearly)
        where = self.holders.where
        rows = where.row[holds]
        fits = self.enough(rows, holds)
        return where.holder[holds[fits]], rows[fits]

    @cached_property
    def by_two(self) -> tuple[Longs, Longs]:
        """Pairs of runs (as first * runs + second) and machines: only both ends make the machine usable.

        Of each machine the two runs that hold most are looked at.
        """
        where = self.holders.where
        row, run = where.row, where.holder
        open_ = self.nearly.copy()
        open_[self.alone[1]] = False
        holds = self.holds_on(open_)
        holds = holds[np.lexsort((-where.gpus[holds], row[holds]))]
        start = starts(row[holds])
        start = start[lengths(start, holds.size) > 1]
        one, two = holds[start], holds[start + 1]
        fits = self.enough(row[one], one, two)
        first, second = run[one[fits]], run[two[fits]]
        pairs = np.minimum(first, second) * len(self.holders.holdings) + np.maximum(first, second)
        return pairs, row[one[fits]]

    def in_domains(self, keys: Longs, machines: Longs) -> tuple[Longs, Longs, Longs, Longs]:
        """Keys, the domains in which they free machines, how many there, and how many the domain lacks."""
        ask, shape = self.case.ask, self.shape
        found = room(ask, shape, self.case.judgement.outcome(shape).usable).counts
        freed = np.zeros(ask.topology.size, dtype=np.bool_)
        freed[machines] = True
        links = ask.kinds if shape.machines > 1 else ()
        slots = slots_of(ask, must_share(ask, shape), links, freed, every=True)
        row_machine = slots.grouping.machine[slots.rows]
        order = np.argsort(row_machine, kind="stable")
        begin = np.searchsorted(row_machine[order], machines, side="left")
        size = np.searchsorted(row_machine[order], machines, side="right") - begin
        each = np.repeat(np.arange(machines.size), size)
        inside = np.arange(each.size) - np.repeat(np.cumsum(size) - size, size) + np.repeat(begin, size)
        domain = slots.grouping.domain[slots.rows[order[inside]]]
        pairs, count = np.unique(keys[each] * found.size + domain, return_counts=True)
        key, where = np.divmod(pairs, max(found.size, 1))
        return key, where, count, np.maximum(shape.machines - found[where], 0)


def alone(holders: Holders, bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Single runs, those that lose least first."""
    candidates: set[int] = set()
    for freed in _freed(holders, case):
        key, _, count, lacking = freed.in_domains(*freed.alone)
        candidates |= set(key[(count >= lacking)].tolist())
    ordered = holders.by_cost(candidates)
    yield from _offered(holders, bench, case, [(number,) for number in ordered])


def together(holders: Holders, bench: Bench, case: Case) -> Iterator[WhatIf]:
    """Two runs: both on one machine, or each on machines of one domain."""
    candidates: set[tuple[int, ...]] = set()
    for freed in _freed(holders, case):
        candidates |= _sharing_machines(holders, freed) | _sharing_domain(freed)
    ordered = sorted(candidates, key=lambda pair: (sum(map(holders.gpus, pair)), pair))
    yield from _offered(holders, bench, case, ordered)


def _freed(holders: Holders, case: Case) -> Iterator[_Freed]:
    """For each shape in which a run's end could help at all."""
    if not holders.holdings:
        return
    for shape in case.ask.shapes:
        freed = _Freed(holders, case, shape)
        if freed.nearly.any():
            yield freed


def _sharing_machines(holders: Holders, freed: _Freed) -> set[tuple[int, ...]]:
    key, _, count, lacking = freed.in_domains(*freed.by_two)
    chosen = np.unique(key[count >= lacking])
    return {divmod(int(pair), len(holders.holdings)) for pair in chosen}


def _sharing_domain(freed: _Freed) -> set[tuple[int, ...]]:
    key, where, count, lacking = freed.in_domains(*freed.alone)
    cost = np.empty(len(freed.holders.holdings), dtype=np.int64)
    distinct = np.unique(key)
    cost[freed.holders.by_cost(distinct.tolist())] = np.arange(distinct.size)
    order = np.lexsort((cost[key], -count, where))
    pairs: set[tuple[int, ...]] = set()
    for part in np.split(order, starts(where[order])[1:]):
        top = part[:_MOST_IN_DOMAIN].tolist()
        for one, two in combinations(top, 2):
            if count[one] + count[two] >= lacking[one]:
                pairs.add(tuple(sorted((int(key[one]), int(key[two])))))
    return pairs


def _offered(
    holders: Holders, bench: Bench, case: Case, candidates: Sequence[tuple[int, ...]]
) -> Iterator[WhatIf]:
    offered = 0
    for runs in candidates[:_MOST_TRIED]:
        offer = holders.end(bench, case, runs)
        if offer is not None:
            yield offer
            offered += 1
        if offered == _MOST_OFFERED:
            return
