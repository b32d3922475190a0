"""Answers as data: codes and numbers, JSON-serialisable, from which `words.py` makes sentences.

Machines about which the same is to be said share a row, so that 10,000 machines are told in a few rows. Nothing here
runs until an answer is asked for its data; the pass pays nothing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from placement.arrays import UNKNOWN, Ints, Longs
from placement.ask import Ask
from placement.columns import Column, base_columns, columns_of
from placement.outcome import (
    DomainCount,
    GroupPlacement,
    MachineOutcome,
    Placement,
    Rank,
    Refusal,
    Rule,
    Score,
    Shape,
)
from placement.refusals import lacking_level, must_share

MOST_DOMAINS = 64
"""Domains told one by one; the others are counted."""

_SIGN = np.uint64(0x9E3779B97F4A7C15)


def placement_data(placement: Placement) -> dict[str, Any]:
    return {
        "kind": "placement",
        "verdict": placement.verdict.code,
        "groups": [_group_data(group) for group in placement.groups],
    }


def _group_data(group: GroupPlacement) -> dict[str, Any]:
    ask = group.outcome.ask
    chosen = np.array([rank.machine for rank in group.ranks])
    return {
        "group": group.name,
        "verdict": group.verdict.code,
        "transport": group.transport,
        "asked": asked_data(ask, group.shape),
        "shape": _shape_data(group.shape),
        "fabric": group.fabric,
        "rack": group.rack,
        "nvlink_domain": group.nvlink_domain,
        "score": {name: getattr(group.score, name) for name in Score.__dataclass_fields__},
        "ranks": [_rank_data(rank) for rank in group.ranks],
        "chosen": [rank.machine_name for rank in group.ranks],
        "rows": machine_rows(group.outcome, besides=chosen),
    }


def _rank_data(rank: Rank) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "machine": rank.machine_name,
        "machine_id": rank.machine_id,
        "gpus": list(rank.gpus),
        "gpu_ids": list(rank.gpu_ids),
        "cpu_millicores": rank.cpu_millicores,
        "memory_bytes": rank.memory_bytes,
        "ports": list(rank.ports),
    }


def refusal_data(refusal: Refusal) -> dict[str, Any]:
    outcome = refusal.outcome
    return {
        "kind": "refusal",
        "cause": refusal.cause.code,
        "group": outcome.ask.group.name,
        "groups": len(outcome.ask.request.groups),
        "even_when_free": refusal.even_when_free,
        "asked": asked_data(outcome.ask, refusal.shape),
        "shape": _shape_data(refusal.shape),
        "other_shapes": [_shape_data(shape) for shape in refusal.other_shapes],
        "mentions": mentions(outcome),
        "domains": [_domain_data(domain) for domain in refusal.domains[:MOST_DOMAINS]],
        "domains_left_out": max(0, len(refusal.domains) - MOST_DOMAINS),
        "models_present": list(outcome.ask.topology.models),
        "largest_machine_gpus": int(outcome.ask.topology.gpus_total.max(initial=0)),
        "rows": machine_rows(outcome),
    }


def _shape_data(shape: Shape) -> dict[str, int]:
    return {"machines": shape.machines, "gpus": shape.gpus}


def _domain_data(domain: DomainCount) -> dict[str, Any]:
    return {
        "kind": domain.kind,
        "name": domain.name,
        "on_fabric": domain.on_fabric,
        "found": domain.found,
        "needed": domain.needed,
        "machines": list(domain.machines),
    }


def asked_data(ask: Ask, shape: Shape) -> dict[str, Any]:
    """The request in numbers; cores and memory are those of one worker, None where a share is taken."""
    group = ask.group
    cpu, memory = ask.cpu_needed(shape.gpus), ask.memory_needed(shape.gpus)
    return {
        "gpus": group.gpus,
        "machines": group.machines,
        "min_nodes": group.min_nodes,
        "max_nodes": group.max_nodes,
        "min_per_machine": group.min_per_machine,
        "models": sorted(group.models),
        "healthy_only": group.healthy_only,
        "min_memory_bytes": group.min_memory_bytes,
        "cpu_millicores": cpu if isinstance(cpu, int) else None,
        "memory_bytes": memory if isinstance(memory, int) else None,
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
    masks = {what: np.uint32(sum(rule.bit for rule in rules)) for what, rules in _MENTIONED.items()}
    every = np.bitwise_or.reduce(np.array(list(masks.values()), dtype=np.uint32))
    nearly = outcome.bits[(outcome.bits & ~every) == 0]
    return [what for what, mask in masks.items() if (nearly & mask).any()]


def domain_counts(refusal: Refusal) -> tuple[DomainCount, ...]:
    """What each domain offers, most first, then by name."""
    ask, slots = refusal.outcome.ask, refusal.slots
    grouping, level = slots.grouping, lacking_level(must_share(ask, refusal.shape))
    domains = np.flatnonzero(_counts_for(ask, refusal))
    domains = domains[np.lexsort((domains, -slots.counts[domains]))]
    by_domain = np.argsort(grouping.domain[slots.rows], kind="stable")
    machines = np.split(grouping.machine[slots.rows][by_domain], np.cumsum(slots.counts)[:-1])
    return tuple(
        DomainCount(
            kind=level or "cluster",
            name=_domain_name(ask, refusal, int(domain)),
            on_fabric=_fabric_name(ask, grouping.fabric, int(domain)) if level != "fabric" else None,
            found=int(slots.counts[domain]),
            needed=refusal.shape.machines,
            machines=tuple(ask.topology.names[machine] for machine in machines[domain]),
        )
        for domain in domains
    )


def _counts_for(ask: Ask, refusal: Refusal) -> "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]":
    """(domains,): domains on a fabric of the kind asked for, and with a name where the gang must keep within it."""
    grouping, fabrics = refusal.slots.grouping, ask.topology.fabrics
    fits = np.ones(grouping.domains, dtype=np.bool_)
    if grouping.gbps is None:
        return fits
    if ask.kinds:
        fits &= np.isin(fabrics.link[grouping.fabric], ask.kinds)
    if ask.group.keep_within == "fabric":
        fits &= fabrics.named[grouping.fabric]
    return fits


def _domain_name(ask: Ask, refusal: Refusal, domain: int) -> str:
    topology, grouping = ask.topology, refusal.slots.grouping
    name = ""
    match lacking_level(must_share(ask, refusal.shape)):
        case "nvlink_domain":
            name = topology.nvlink_domains[grouping.nvlink_domain[domain]]
        case "rack":
            name = topology.racks[grouping.rack[domain]]
        case "fabric":
            name = topology.fabrics.names[grouping.fabric[domain]]
    return name


def _fabric_name(ask: Ask, fabric: Ints, domain: int) -> str | None:
    row = int(fabric[domain])
    return None if row == UNKNOWN else ask.topology.fabrics.names[row]


def machine_rows(outcome: MachineOutcome, besides: Longs | None = None) -> list[dict[str, Any]]:
    """Every machine but `besides`, nearest first; machines with the same reasons and numbers share a row."""
    bits = outcome.bits
    left = np.ones(bits.size, dtype=np.bool_)
    if besides is not None:
        left[besides] = False
    rows: list[dict[str, Any]] = []
    for pattern in np.unique(bits[left]).tolist():
        machines = np.flatnonzero((bits == pattern) & left)
        rules = [rule for rule in Rule if rule.bit & pattern]
        rows += _rows_of(outcome, machines, rules)
    return sorted(rows, key=_nearness)


def _rows_of(outcome: MachineOutcome, machines: Longs, rules: Sequence[Rule]) -> list[dict[str, Any]]:
    """The rows of machines that fail exactly these rules."""
    base = base_columns(outcome, machines)
    by_rule = {rule: columns_of(rule, outcome, machines) for rule in rules}
    every = [*base, *(column for columns in by_rule.values() for column in columns)]
    names = outcome.ask.topology.names
    rows = []
    for members in _alike([column.values for column in every], machines.size):
        first = int(members[0])
        rows.append(
            {
                "codes": [rule.code for rule in rules],
                "numbers": {
                    "machine": _numbers(base, first),
                    **{rule.code: _numbers(columns, first) for rule, columns in by_rule.items()},
                },
                "machines": [names[machine] for machine in machines[members]],
            }
        )
    return rows


def _numbers(columns: Sequence[Column], position: int) -> dict[str, Any]:
    return {column.name: column.read(position) for column in columns}


def _alike(columns: Sequence[Longs], size: int) -> list[Longs]:
    """Positions 0 … size - 1 put together where all columns agree; each set ascending."""
    if not columns:
        return [np.arange(size)]
    mixed = np.zeros(size, dtype=np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.uint64)) * _SIGN
        mixed ^= mixed >> np.uint64(29)
    first, inverse, counts = np.unique(mixed, return_index=True, return_inverse=True, return_counts=True)[1:]
    if any((column != column[first][inverse]).any() for column in columns):
        # Two different rows mixed to one number: compare them in full.
        inverse, counts = np.unique(np.stack(columns), axis=1, return_inverse=True, return_counts=True)[1:]
    return np.split(np.argsort(inverse.reshape(-1), kind="stable"), np.cumsum(counts)[:-1])


def _nearness(row: dict[str, Any]) -> tuple[int, int, int, str]:
    """Sort key: usable first, then by how easily the main reason is lifted, fewer reasons, more free GPUs, name."""
    codes = row["codes"]
    main = -int(Rule[codes[0].upper()]) if codes else -len(Rule)
    return (main, len(codes), -row["numbers"]["machine"].get("free", 0), row["machines"][0])
