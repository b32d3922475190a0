"""The rules: each says which machines it refuses for one group in one shape.

A rule is run only when the request asks for it (`rulebook.py`), returns a boolean array over all machines, True =
refused, and never looks at what another rule said.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placement.arrays import UNKNOWN, Bools, Ints, Longs, Words
from placement.ask import Ask, GpuCounts, Sound
from placement.facts import MachineState
from placement.shapes import Shape
from placement.topology import NO_PORT, Topology


@dataclass(eq=False)
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

    @cached_property
    def sound(self) -> Sound:
        return self.ask.sound(self.shape.gpus)


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
    return _only(trial, trial.topology.rows_kept(trial.ask.group.selection.exclude_machines))


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


def in_state(state: MachineState) -> Check:
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
    return trial.sound.too_few


def gpus_busy(trial: Trial) -> Bools:
    free, sound = trial.gpus.free_where_fitting, trial.sound
    return np.asarray((free < trial.shape.gpus) & sound.enough & (sound.gpus > free))


def gpus_suspect(trial: Trial) -> Bools:
    """Suspects stand in the way of healthy_only now, or would even if every run there had ended."""
    rows, needed = trial.sound.with_suspects, trial.shape.gpus
    free, healthy = trial.gpus.free_where_fitting[rows], trial.gpus.healthy_where_fitting[rows]
    return _only(trial, rows[(trial.sound.healthy < needed) | ((free >= needed) & (healthy < needed))])


# Cores and memory.


def cpu_short(trial: Trial) -> Bools:
    return np.asarray(trial.ask.snapshot.cpu_free < trial.ask.cpu_needed(trial.shape.gpus))


def memory_short(trial: Trial) -> Bools:
    return np.asarray(trial.ask.snapshot.memory_free < trial.ask.memory_needed(trial.shape.gpus))
