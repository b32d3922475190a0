"""The rules: each says which machines it refuses for one group in one shape.

A rule is run only when the request asks for it (`RULES`), returns a boolean array over all machines, True = refused,
and never looks at what another rule said. Every rule is run on every machine; placement and explanation read the same
arrays. What a rule concludes from hardware, labels and names alone is remembered until those change.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from placement.arrays import UNKNOWN, Bools, Ints, Longs, Words, read_only
from placement.ask import Ask, GpuCounts
from placement.facts import MachineState
from placement.rules import Rule, Said
from placement.shapes import Shape
from placement.topology import NO_PORT, Topology


@dataclass(frozen=True, slots=True)
class Trial:
    """One group in one shape against one snapshot: what every rule is given."""

    ask: Ask
    shape: Shape

    @property
    def topology(self) -> Topology:
        return self.ask.topology

    @property
    def gpus(self) -> GpuCounts:
        return self.ask.gpus


Check = Callable[[Trial], Bools]


# Who may use the machine, and what the request itself admits.


def pool_not_allowed(trial: Trial) -> Bools:
    return _outside_pools(trial, trial.ask.request.allowed_pools)


def not_in_pools(trial: Trial) -> Bools:
    return _outside_pools(trial, trial.ask.group.selection.pools)


def _outside_pools(trial: Trial, pools: frozenset[str] | None) -> Bools:
    # The extra last entry is read by the index of machines in no pool.
    outside = np.array([*(name not in (pools or ()) for name in trial.topology.pools), True])
    return np.asarray(outside[trial.topology.pool])


def pool_cap(trial: Trial) -> Bools:
    return _inside_pools(trial, trial.ask.request.over_cap)


def pool_guaranteed(trial: Trial) -> Bools:
    return _inside_pools(trial, trial.ask.request.guaranteed_to_others)


def _inside_pools(trial: Trial, pools: frozenset[str]) -> Bools:
    inside = np.array([*(name in pools for name in trial.topology.pools), False])
    return np.asarray(inside[trial.topology.pool])


def not_named(trial: Trial) -> Bools:
    return _all_but(trial, trial.topology.rows_named(trial.ask.group.selection.machines or ()))


def excluded(trial: Trial) -> Bools:
    return _only(trial, trial.topology.rows_named(trial.ask.group.selection.exclude_machines))


def same_run(trial: Trial) -> Bools:
    return _only(trial, trial.topology.rows_named(trial.ask.request.occupied))


def reserved(trial: Trial) -> Bools:
    return _only(trial, trial.topology.rows_named(trial.ask.request.reserved))


def _all_but(trial: Trial, rows: Ints | Longs) -> Bools:
    return ~_only(trial, rows)


def _only(trial: Trial, rows: Ints | Longs) -> Bools:
    refused = np.zeros(trial.topology.size, dtype=np.bool_)
    refused[rows] = True
    return refused


def label_missing(trial: Trial) -> Bools:
    pairs = tuple(trial.ask.group.selection.match_labels.items())
    return _bits_missing(trial.topology.labels, trial.topology.label_pairs, pairs)


def drive_missing(trial: Trial) -> Bools:
    return _bits_missing(trial.topology.drives, trial.topology.drive_names, tuple(trial.ask.group.drives))


def _bits_missing(words: Words, table: tuple[object, ...], wanted: tuple[object, ...]) -> Bools:
    mask = np.zeros(words.shape[1], dtype=np.uint64)
    for item in wanted:
        if item not in table:
            return np.ones(words.shape[0], dtype=np.bool_)
        bit = table.index(item)
        mask[bit // 64] |= np.uint64(1) << np.uint64(bit % 64)
    return np.asarray(((words & mask) != mask).any(axis=1))


# The machine's state.


def _in_state(state: MachineState) -> Check:
    def refused(trial: Trial) -> Bools:
        return np.asarray((trial.ask.snapshot.state & np.uint8(state)) != 0)

    return refused


def not_ready(trial: Trial) -> Bools:
    """Neither ready nor in a state that says why it is not."""
    known = MachineState.READY | MachineState.UNREACHABLE | MachineState.QUARANTINED
    return np.asarray((trial.ask.snapshot.state & np.uint8(known)) == 0)


# RDMA ports. Only asked when the run asked for RDMA.


def _over_kinds(ask: Ask, table: Ints, join: Callable[[Ints, Ints], Ints]) -> Ints:
    joined = table[ask.kinds[0]]
    for kind in ask.kinds[1:]:
        joined = join(joined, table[kind])
    return np.asarray(joined)


def ports_present(ask: Ask) -> Ints:
    """(machines,): ports of the kinds asked for, wherever they lead."""
    return _over_kinds(ask, ask.topology.port_sums.present, np.add)


def ports_usable(ask: Ask) -> Ints:
    """(machines,): those on a known compute fabric."""
    return _over_kinds(ask, ask.topology.port_sums.usable, np.add)


def best_port_up(ask: Ask) -> Ints:
    """(machines,): Gb/s of the fastest usable port that is up."""
    return _over_kinds(ask, ask.topology.port_sums.best_up, np.maximum)


def best_port_down(ask: Ask) -> Ints:
    """(machines,): Gb/s of the fastest usable port that is down."""
    return _over_kinds(ask, ask.topology.port_sums.best_down, np.maximum)


def no_rdma_port(trial: Trial) -> Bools:
    return np.asarray(ports_present(trial.ask) == 0)


def port_no_fabric(trial: Trial) -> Bools:
    return np.asarray((ports_present(trial.ask) > 0) & (ports_usable(trial.ask) == 0))


def port_slow(trial: Trial) -> Bools:
    """Ports are up and all too slow, or all too slow even if those that are down came up."""
    ask = trial.ask
    up, down = best_port_up(ask), best_port_down(ask)
    slow = (up < ask.min_gbps) & ((up != NO_PORT) | (down < ask.min_gbps))
    return np.asarray(slow & (ports_usable(ask) > 0))


def port_down(trial: Trial) -> Bools:
    """No port qualifies, and one that is down would (or none is up at all)."""
    ask = trial.ask
    up, down = best_port_up(ask), best_port_down(ask)
    return np.asarray(
        (up < ask.min_gbps) & ((down >= ask.min_gbps) | (up == NO_PORT)) & (ports_usable(ask) > 0)
    )


# Where the machine stands.


def no_rack(trial: Trial) -> Bools:
    return np.asarray(trial.topology.rack == UNKNOWN)


def no_nvlink_domain(trial: Trial) -> Bools:
    return np.asarray(trial.topology.nvlink_domain == UNKNOWN)


def no_fabric(trial: Trial) -> Bools:
    homeless = np.asarray(trial.topology.home_fabric == UNKNOWN)
    spread, keep = trial.ask.group.spread == "fabric", trial.ask.group.keep_within == "fabric"
    if spread and keep:
        return homeless | _on_no_fabric(trial)
    return homeless if spread else _on_no_fabric(trial)


def _on_no_fabric(trial: Trial) -> Bools:
    """On no named fabric. A machine whose ports qualify elsewhere only is on none either."""
    ask, members, fabrics = trial.ask, trial.topology.members, trial.topology.fabrics
    counts = fabrics.named[members.fabric]
    if not ask.kinds:
        return _all_but(trial, members.machine[counts & (members.gbps != NO_PORT)])
    counts &= np.isin(fabrics.link[members.fabric], ask.kinds)
    nowhere = _all_but(trial, members.machine[counts])
    elsewhere = _all_but(trial, members.machine[counts & (members.gbps >= ask.min_gbps)])
    return nowhere | (elsewhere & (best_port_up(ask) >= ask.min_gbps))


# GPUs. Only asked when the run asked for GPUs.


def no_gpus(trial: Trial) -> Bools:
    return np.asarray(trial.topology.gpus_total == 0)


def other_model(trial: Trial) -> Bools:
    return np.asarray((trial.topology.gpus_total > 0) & (trial.gpus.of_model == 0))


def too_few_gpus(trial: Trial) -> Bools:
    of_model = trial.gpus.of_model
    return np.asarray((of_model > 0) & (of_model < trial.shape.gpus))


def gpu_memory(trial: Trial) -> Bools:
    return np.asarray(trial.gpus.fitting < np.minimum(trial.gpus.of_model, trial.shape.gpus))


def gpus_faulty(trial: Trial) -> Bools:
    needed = trial.shape.gpus
    return np.asarray(trial.ask.has_fitting(needed) & (trial.gpus.sound < needed))


def gpus_busy(trial: Trial) -> Bools:
    gpus, needed = trial.gpus, trial.shape.gpus
    return np.asarray((gpus.free < needed) & trial.ask.has_fitting(needed) & (gpus.sound > gpus.free))


def gpus_suspect(trial: Trial) -> Bools:
    """Suspects stand in the way of healthy_only now, or would even if every run there had ended."""
    gpus, needed = trial.gpus, trial.shape.gpus
    refused = np.asarray(trial.ask.has_fitting(needed) & (gpus.suspect > 0))
    rows = np.flatnonzero(refused)  # few
    free, healthy, suspect = gpus.free[rows], gpus.free_healthy[rows], gpus.suspect[rows]
    refused[rows] = (gpus.sound[rows] - suspect < needed) | ((free >= needed) & (healthy < needed))
    return refused


# Cores and memory.


def cpu_short(trial: Trial) -> Bools:
    return np.asarray(trial.ask.snapshot.cpu_free < trial.ask.cpu_needed(trial.shape.gpus))


def memory_short(trial: Trial) -> Bools:
    return np.asarray(trial.ask.snapshot.memory_free < trial.ask.memory_needed(trial.shape.gpus))


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A rule that looks at the topology alone, and the part of the request that it reads; None: it is not asked."""

    check: Check
    reads: Callable[[Trial], Hashable | None]
    passing: bool = False
    """What it reads is one run's own choice of machines, or changes with every pass."""


@dataclass(frozen=True, slots=True)
class _State:
    """A rule that looks at the machines' states alone, and is always asked."""

    check: Check


@dataclass(frozen=True, slots=True)
class _Live:
    """A rule that looks at what changes with every placement, and when it is asked."""

    check: Check
    asked: Callable[[Trial], bool]


def _always(_: Trial) -> bool:
    return True


def _with_gpus(trial: Trial) -> bool:
    return trial.shape.gpus > 0


def _gpu_kind(trial: Trial) -> Hashable | None:
    group = trial.ask.group
    return (group.models, group.min_memory_bytes, trial.shape.gpus) if trial.shape.gpus else None


def _ports(trial: Trial) -> Hashable | None:
    return (trial.ask.kinds, trial.ask.min_gbps) if trial.ask.kinds else None


def _fabric(trial: Trial) -> Hashable | None:
    group = trial.ask.group
    if "fabric" not in (group.keep_within, group.spread):
        return None
    return (group.keep_within, group.spread, trial.ask.kinds, trial.ask.min_gbps)


def _rack(trial: Trial) -> Hashable | None:
    return "rack" in (trial.ask.group.keep_within, trial.ask.group.spread) or None


def _nvlink(trial: Trial) -> Hashable | None:
    joins = trial.ask.group.interconnect == "nvlink" and trial.shape.machines > 1
    return joins or trial.ask.group.keep_within == "nvlink_domain" or None


RULES: Mapping[Rule, _Fixed | _State | _Live] = {
    Rule.POOL_NOT_ALLOWED: _Fixed(pool_not_allowed, lambda trial: trial.ask.request.allowed_pools),
    Rule.NOT_IN_POOLS: _Fixed(not_in_pools, lambda trial: trial.ask.group.selection.pools),
    Rule.NOT_NAMED: _Fixed(not_named, lambda trial: trial.ask.group.selection.machines, passing=True),
    Rule.LABEL_MISSING: _Fixed(
        label_missing, lambda trial: frozenset(trial.ask.group.selection.match_labels.items()) or None
    ),
    Rule.EXCLUDED: _Fixed(
        excluded, lambda trial: trial.ask.group.selection.exclude_machines or None, passing=True
    ),
    Rule.SAME_RUN: _Fixed(same_run, lambda trial: trial.ask.request.occupied or None, passing=True),
    Rule.NO_GPUS: _Fixed(no_gpus, _gpu_kind),
    Rule.OTHER_MODEL: _Fixed(other_model, _gpu_kind),
    Rule.GPU_MEMORY: _Fixed(gpu_memory, _gpu_kind),
    Rule.TOO_FEW_GPUS: _Fixed(too_few_gpus, _gpu_kind),
    Rule.DRIVE_MISSING: _Fixed(drive_missing, lambda trial: trial.ask.group.drives or None),
    Rule.NO_RDMA_PORT: _Fixed(no_rdma_port, _ports),
    Rule.PORT_NO_FABRIC: _Fixed(port_no_fabric, _ports),
    Rule.NO_NVLINK_DOMAIN: _Fixed(no_nvlink_domain, _nvlink),
    Rule.NO_FABRIC: _Fixed(no_fabric, _fabric),
    Rule.NO_RACK: _Fixed(no_rack, _rack),
    Rule.PORT_DOWN: _Fixed(port_down, _ports),
    Rule.PORT_SLOW: _Fixed(port_slow, _ports),
    Rule.QUARANTINED: _State(_in_state(MachineState.QUARANTINED)),
    Rule.UNREACHABLE: _State(_in_state(MachineState.UNREACHABLE)),
    Rule.CONTESTED: _State(_in_state(MachineState.CONTESTED)),
    Rule.NOT_READY: _State(not_ready),
    Rule.GPUS_FAULTY: _Live(gpus_faulty, _with_gpus),
    Rule.POOL_CAP: _Fixed(pool_cap, lambda trial: trial.ask.request.over_cap or None),
    Rule.POOL_GUARANTEED: _Fixed(
        pool_guaranteed, lambda trial: trial.ask.request.guaranteed_to_others or None
    ),
    Rule.RESERVED: _Fixed(reserved, lambda trial: trial.ask.request.reserved or None, passing=True),
    Rule.MEMORY_SHORT: _Live(memory_short, _always),
    Rule.CPU_SHORT: _Live(cpu_short, _always),
    Rule.GPUS_BUSY: _Live(gpus_busy, _with_gpus),
    Rule.GPUS_SUSPECT: _Live(gpus_suspect, lambda trial: _with_gpus(trial) and trial.ask.group.healthy_only),
    Rule.STALE_AGENT: _State(_in_state(MachineState.STALE_AGENT)),
    Rule.DRAINING: _State(_in_state(MachineState.DRAINING)),
    Rule.CORDONED: _State(_in_state(MachineState.CORDONED)),
}
"""Every rule, and when it is asked."""


def _alike() -> dict[Callable[[Trial], Hashable | None], dict[Rule, _Fixed]]:
    """The fixed rules, those together that read the same of the request."""
    found: dict[Callable[[Trial], Hashable | None], dict[Rule, _Fixed]] = {}
    for rule, entry in RULES.items():
        if isinstance(entry, _Fixed):
            found.setdefault(entry.reads, {})[rule] = entry
    return found


_FIXED = [(reads, tuple(rules), next(iter(rules.values())).passing) for reads, rules in _alike().items()]
_STATE = tuple(rule for rule, entry in RULES.items() if isinstance(entry, _State))
_LIVE = [(rule, entry) for rule, entry in RULES.items() if isinstance(entry, _Live)]


def refused_by_rule(ask: Ask, shape: Shape) -> Said:
    """What every rule that the request asks for says about every machine."""
    trial, topology, state = Trial(ask, shape), ask.topology, ask.snapshot.state
    # The key's number is that array's alone as long as what is remembered holds on to it.
    of_state = topology.remember(("state", id(state)), lambda: (state, _said_by(trial, _STATE)), passing=True)
    parts = [of_state[1]]
    for reads, rules, passing in _FIXED:
        read = reads(trial)
        if read is not None:
            parts.append(topology.remember((rules, read), partial(_said_by, trial, rules), passing=passing))
    live = {rule: entry.check(trial) for rule, entry in _LIVE if entry.asked(trial)}
    return Said.together([*parts, Said.of(live)])


def _said_by(trial: Trial, rules: Iterable[Rule]) -> Said:
    return Said.of({rule: read_only(RULES[rule].check(trial)) for rule in rules})
