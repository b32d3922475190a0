"""Answers as data: codes and numbers, JSON-serialisable, from which `words.py` makes sentences.

Machines about which the same is to be said share a row, so that 10,000 machines are told in a few rows. Nothing here
runs until an answer is asked for its data; the pass pays nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from placement.arrays import UNKNOWN, Bits, Bools, Longs, starts
from placement.ask import Ask
from placement.columns import Column, base_columns, columns_of
from placement.rules import QUOTA, RESERVATION, MachineOutcome, Rule
from placement.shapes import Shape

_EVERY = "machine"
"""Where a row has the numbers that are told about every machine."""

_SIGN = np.uint64(0x9E3779B97F4A7C15)

_BELOW = np.uint64(24)
_POSITION = np.uint64((1 << 24) - 1)
"""How many bits tell which machine of a snapshot it is, and these bits."""


def asked_data(ask: Ask, shape: Shape) -> dict[str, Any]:
    """The request in numbers; cores and memory are those of one worker, None where a share is taken."""
    group = ask.group
    return {
        "gpus": group.gpus,
        "machines": group.machines,
        "min_nodes": group.min_nodes,
        "max_nodes": group.max_nodes,
        "min_per_machine": group.min_per_machine,
        "models": sorted(group.models),
        "healthy_only": group.healthy_only,
        "min_memory_bytes": group.min_memory_bytes,
        "cpu_millicores": ask.cpu_fixed(shape.gpus),
        "memory_bytes": ask.memory_fixed(shape.gpus),
        "interconnect": group.interconnect,
        "min_gbps": group.min_gbps,
        "keep_within": group.keep_within,
        "spread": group.spread,
    }


_MENTIONED: dict[str, tuple[Rule, ...]] = {
    "gpu_memory": (Rule.GPU_MEMORY,),
    "cpu": (Rule.CPU_SHORT,),
    "memory": (Rule.MEMORY_SHORT,),
    "port": (Rule.PORT_SLOW, Rule.PORT_DOWN),
}


def mentions(outcome: MachineOutcome) -> list[str]:
    """What the headline must name beside GPUs: what keeps some machine from being usable where nothing else does."""
    rules = [rule for every in _MENTIONED.values() for rule in every if rule in outcome.refused]
    nearly = outcome.usable_but_for(rules)
    kept = {rule for rule in rules if (outcome.refused[rule] & nearly).any()}
    return [what for what, every in _MENTIONED.items() if kept.intersection(every)]


def closed(outcome: MachineOutcome) -> dict[str, Any]:
    """What keeps this run from machines that have room: pools by name, and how many machines are reserved."""
    rules = tuple(rule for rule in (*QUOTA, *RESERVATION) if rule in outcome.refused)
    if not rules:
        return {}
    topology, ready = outcome.ask.topology, outcome.usable_but_for(rules)

    def pools(rule: Rule) -> list[str]:
        inside = topology.pool[ready & outcome.refused[rule]]
        return [topology.pools[row] for row in np.unique(inside).tolist()]

    told: dict[str, Any] = {rule.code: pools(rule) for rule in QUOTA if rule in rules}
    if Rule.RESERVED in rules:
        told[Rule.RESERVED.code] = int((ready & outcome.refused[Rule.RESERVED]).sum())
    return told


def by_main_rule(outcome: MachineOutcome) -> dict[Rule, Bools]:
    """Per rule that is the main one of some machine, (machines,): True for those; the nearest ones first."""
    left, told = np.ones(outcome.ask.topology.size, dtype=np.bool_), {}
    for rule in sorted(outcome.refused):
        refused = outcome.refused[rule]
        here = refused & left
        if here.any():
            told[rule] = here
            left = left & ~refused
    return dict(reversed(told.items()))


def main_codes(outcome: MachineOutcome) -> dict[str, int]:
    """Code of the main rule → machines that it refuses first, nearest first; usable machines are not counted."""
    return {rule.code: int(np.count_nonzero(here)) for rule, here in by_main_rule(outcome).items()}


def nearest_row(outcome: MachineOutcome) -> dict[str, Any] | None:
    """A row about the one machine that `machine_rows` names first of those that are refused."""
    here = next(iter(by_main_rule(outcome).values()), None)
    if here is None:
        return None
    machines = np.flatnonzero(here)
    codes = np.sum([refused[machines] for refused in outcome.refused.values()], axis=0, dtype=np.int64)
    machines = machines[codes == codes.min()]
    for free in base_columns(outcome, machines)[:1]:
        machines = machines[free.values == free.values.max()]
    told = _numbers(_parts(outcome, machines[:1]), np.zeros(1, dtype=np.int64))
    return _row(told[0], [outcome.ask.topology.names[machines[0]]])


def machine_rows(outcome: MachineOutcome, besides: Longs | None = None) -> list[dict[str, Any]]:
    """Every machine but `besides`, nearest first; machines with the same reasons and numbers share a row."""
    left = np.ones(outcome.bits.size, dtype=np.bool_)
    if besides is not None:
        left[besides] = False
    return sorted(_rows_of(outcome, np.flatnonzero(left)), key=_nearness)


def _rows_of(outcome: MachineOutcome, machines: Longs) -> list[dict[str, Any]]:
    """The rows of these machines, which are ascending."""
    parts = _parts(outcome, machines)
    order, first = _alike(outcome.bits[machines], parts)
    names = list(map(outcome.ask.topology.names.__getitem__, machines[order].tolist()))
    bounds = pairwise([*first.tolist(), order.size])
    numbers = _numbers(parts, order[first])
    return [_row(told, names[begin:end]) for told, (begin, end) in zip(numbers, bounds, strict=True)]


def _row(numbers: dict[str, dict[str, Any]], names: list[str]) -> dict[str, Any]:
    return {"codes": [code for code in numbers if code != _EVERY], "numbers": numbers, "machines": names}


def _numbers(parts: "Sequence[_Part]", machines: Longs) -> list[dict[str, dict[str, Any]]]:
    """Per machine (by position among those told about), what is told of it, by code in the order of `parts`."""
    told: list[dict[str, dict[str, Any]]] = [{} for _ in range(machines.size)]
    for part in parts:
        place = part.place[machines]
        here = np.flatnonzero(place != UNKNOWN)
        for number, numbers in zip(here.tolist(), part.numbers(place[here]), strict=True):
            told[number][part.code] = numbers
    return told


@dataclass(frozen=True)
class _Part:
    """The numbers of one rule about those of the machines that it refuses, or what is told about every machine."""

    code: str
    place: Longs
    """(machines told about,): where each one's numbers are in the columns; UNKNOWN where there are none."""
    columns: Sequence[Column]

    def numbers(self, places: Longs) -> list[dict[str, Any]]:
        """For each of these places in the columns."""
        if not self.columns:
            return [{} for _ in range(places.size)]
        names = [column.name for column in self.columns]
        read = zip(*(column.read(places) for column in self.columns), strict=True)
        return [dict(zip(names, values, strict=True)) for values in read]

    def values(self) -> Iterator[Longs]:
        """(machines told about,): each column, UNKNOWN where the rule says nothing; but for those with one value only,
        which tell no more than whether the rule says anything."""
        here = np.flatnonzero(self.place != UNKNOWN)
        for column in self.columns:
            if (column.values != column.values[:1]).any():
                every = np.full(self.place.size, UNKNOWN, dtype=np.int64)
                every[here] = column.values
                yield every


def _parts(outcome: MachineOutcome, machines: Longs) -> list[_Part]:
    parts = [_Part(_EVERY, np.arange(machines.size), base_columns(outcome, machines))]
    for rule in sorted(outcome.refused):
        refused = np.flatnonzero(outcome.refused[rule][machines])
        if refused.size:
            place = np.full(machines.size, UNKNOWN, dtype=np.int64)
            place[refused] = np.arange(refused.size)
            parts.append(_Part(rule.code, place, columns_of(rule, outcome, machines[refused])))
    return parts


def _alike(bits: Bits, parts: Sequence[_Part]) -> tuple[Longs, Longs]:
    """Positions of all machines, those together that fail the same rules with the same numbers, each set ascending; and
    where in these each set begins."""
    columns = [bits.view(np.int64), *(values for part in parts for values in part.values())]
    mixed = np.zeros(bits.size, dtype=np.uint64)
    for column in columns:
        mixed = (mixed ^ column.view(np.uint64)) * _SIGN
        mixed ^= mixed >> np.uint64(29)
    # The position in the bits below: numbers are sorted much faster than places by number.
    mixed = (mixed >> _BELOW << _BELOW) | np.arange(bits.size, dtype=np.uint64)
    mixed.sort()
    order = (mixed & _POSITION).astype(np.int64)
    first = starts(mixed >> _BELOW)
    if starts(*(column.take(order) for column in columns)).size != first.size:
        # Two different rows mixed to one number: compare them in full.
        order = np.lexsort(columns)
        first = starts(*(column.take(order) for column in columns))
    return order, first


def _nearness(row: dict[str, Any]) -> tuple[int, int, int, str]:
    """Sort key: usable first, then by how easily the main reason is lifted, fewer reasons, more free GPUs, name."""
    codes = row["codes"]
    main = -int(Rule[codes[0].upper()]) if codes else -len(Rule)
    return (main, len(codes), -row["numbers"]["machine"].get("free", 0), row["machines"][0])
