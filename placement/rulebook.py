"""When each rule is asked, and how long what it says is remembered.

Every rule is run on every machine; placement and explanation read the same arrays. What a rule concludes from
hardware, labels and names alone is remembered until those change.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from placement.arrays import read_only
from placement.ask import Ask
from placement.facts import MachineState
from placement.filters import (
    Check,
    Trial,
    cpu_short,
    drive_missing,
    excluded,
    gpu_memory,
    gpus_busy,
    gpus_faulty,
    gpus_suspect,
    in_state,
    label_missing,
    memory_short,
    no_fabric,
    no_gpus,
    no_nvlink_domain,
    no_rack,
    no_rdma_port,
    not_in_pools,
    not_named,
    not_ready,
    other_model,
    pool_cap,
    pool_guaranteed,
    pool_not_allowed,
    port_down,
    port_no_fabric,
    port_slow,
    reserved,
    same_run,
    too_few_gpus,
)
from placement.rules import Rule, Said
from placement.shapes import Shape


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A rule that looks at the topology alone, and the part of the request that it reads; None: it is not asked."""

    check: Check
    reads: Callable[[Trial], Hashable | None]
    passing: bool = False
    """What it reads is one run's own choice of machines, or changes with every pass."""
    apart: bool = False
    """What it says is asked about by itself: whether the gang would fit without it."""


@dataclass(frozen=True, slots=True)
class _State:
    """A rule that looks at the machines' states alone, and is always asked."""

    check: Check


@dataclass(frozen=True, slots=True)
class _Live:
    """A rule that looks at what changes with every placement or every run, and when it is asked."""

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
    # These two name few machines, each run others: of them the rows are kept, not what is said of every machine.
    Rule.EXCLUDED: _Live(excluded, lambda trial: bool(trial.ask.group.selection.exclude_machines)),
    Rule.SAME_RUN: _Live(same_run, lambda trial: bool(trial.ask.request.occupied)),
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
    Rule.QUARANTINED: _State(in_state(MachineState.QUARANTINED)),
    Rule.UNREACHABLE: _State(in_state(MachineState.UNREACHABLE)),
    Rule.CONTESTED: _State(in_state(MachineState.CONTESTED)),
    Rule.NOT_READY: _State(not_ready),
    Rule.GPUS_FAULTY: _Live(gpus_faulty, _with_gpus),
    Rule.POOL_CAP: _Fixed(pool_cap, lambda trial: trial.ask.request.over_cap or None, apart=True),
    Rule.POOL_GUARANTEED: _Fixed(
        pool_guaranteed, lambda trial: trial.ask.request.guaranteed_to_others or None, apart=True
    ),
    Rule.RESERVED: _Fixed(reserved, lambda trial: trial.ask.request.reserved or None, passing=True),
    Rule.GPUS_BUSY: _Live(gpus_busy, _with_gpus),
    Rule.MEMORY_SHORT: _Live(memory_short, _always),
    Rule.CPU_SHORT: _Live(cpu_short, _always),
    Rule.GPUS_SUSPECT: _Live(gpus_suspect, lambda trial: _with_gpus(trial) and trial.ask.group.healthy_only),
    Rule.STALE_AGENT: _State(in_state(MachineState.STALE_AGENT)),
    Rule.DRAINING: _State(in_state(MachineState.DRAINING)),
    Rule.CORDONED: _State(in_state(MachineState.CORDONED)),
}
"""Every rule, and when it is asked."""


_Reads = Callable[[Trial], Hashable | None]


def _alike(*, joined: bool) -> list[tuple[_Reads, tuple[Rule, ...], bool]]:
    """The fixed rules, those together that read the same of the request, and whether that is passing.

    `joined`: those that many requests have in common, so that what all of them say together is worth remembering.
    """
    found: dict[_Reads, dict[Rule, _Fixed]] = {}
    for rule, entry in RULES.items():
        if isinstance(entry, _Fixed) and joined == (not entry.passing and not entry.apart):
            found.setdefault(entry.reads, {})[rule] = entry
    return [(reads, tuple(rules), next(iter(rules.values())).passing) for reads, rules in found.items()]


_JOINED, _SINGLE = _alike(joined=True), _alike(joined=False)
_STATE = tuple(rule for rule, entry in RULES.items() if isinstance(entry, _State))
_LIVE = [(rule, entry) for rule, entry in RULES.items() if isinstance(entry, _Live)]


def refused_by_rule(ask: Ask, shape: Shape) -> Sequence[Said]:
    """What every rule that the request asks for says about every machine; each rule is in one part of the answer."""
    trial, topology, state = Trial(ask, shape), ask.topology, ask.snapshot.state
    # The key's number is that array's alone as long as what is remembered holds on to it.
    of_state = topology.remember(("state", id(state)), lambda: (state, _said_by(trial, _STATE)), passing=True)
    parts = [of_state[1]]
    read = tuple(reads(trial) for reads, _, _ in _JOINED)
    if any(each is not None for each in read):
        parts.append(topology.remember_joined(read, partial(_said_together, trial, read)))
    for reads, rules, passing in _SINGLE:
        if (single := reads(trial)) is not None:
            parts.append(topology.remember((rules, single), partial(_said_by, trial, rules), passing=passing))
    parts.append(Said.of({rule: entry.check(trial) for rule, entry in _LIVE if entry.asked(trial)}))
    return parts


def _said_together(trial: Trial, read: Sequence[Hashable | None]) -> Said:
    """By the joined rules, of which each is remembered for itself, too: requests differ in few of them."""
    return Said.together(
        [
            trial.topology.remember((rules, each), partial(_said_by, trial, rules))
            for (_, rules, _), each in zip(_JOINED, read, strict=True)
            if each is not None
        ]
    )


def _said_by(trial: Trial, rules: Iterable[Rule]) -> Said:
    return Said.of({rule: read_only(RULES[rule].check(trial)) for rule in rules})
