"""The numbers beside each reason: per rule, columns over the machines that it refuses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from placement.arrays import UNKNOWN, Bools, Ints, Longs
from placement.filters import best_port_down, best_port_up, ports_present
from placement.rules import MachineOutcome, Rule
from placement.snapshot import GPU_FAULTY, GPU_SUSPECT
from placement.topology import MIXED_MODELS, Ports, Topology, on_compute_fabric, owners

_MOST_BITS = 62
"""Things told in one column as bits of a number: GPUs, labels, drives."""

_MOST_PORTS = 32
"""Ports of one machine told by name."""

FASTEST_PORTS, PORTS_DOWN = "fastest_ports", "ports_down"
"""What is remembered of a topology under these names follows from its ports."""


@dataclass(frozen=True)
class Column:
    """One number or name for each machine of a row; equal values mean equal text."""

    name: str
    values: Longs
    meaning: Callable[[int], Any] = int
    """What a value stands for: itself, a name, a list of names."""

    def read(self, positions: Longs) -> list[Any]:
        values = self.values[positions].tolist()
        return values if self.meaning is int else [self.meaning(value) for value in values]


def _column(name: str, values: Any, machines: Longs, meaning: Callable[[int], Any] = int) -> Column:
    every = np.empty(machines.size, dtype=np.int64)
    every[:] = values
    return Column(name, every, meaning)


def base_columns(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    """What is told about every machine: how many of the GPUs asked for it has and how many are free."""
    if not outcome.shape.gpus:
        return []
    gpus = outcome.ask.gpus
    free = gpus.free_healthy if outcome.ask.group.healthy_only else gpus.free
    return [_column("free", free[machines], machines), _column("total", gpus.fitting[machines], machines)]


def columns_of(rule: Rule, outcome: MachineOutcome, machines: Longs) -> list[Column]:
    """The numbers of this rule's sentence for these machines, all of which it refuses."""
    make = _COLUMNS.get(rule)
    return make(outcome, machines) if make else []


def _pool(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    topology = outcome.ask.topology
    return [_column("pool", topology.pool[machines], machines, _name_in(topology.pools))]


def _name_in(table: Sequence[str]) -> Callable[[int], str]:
    return lambda row: table[row] if row >= 0 else ""


def _labels(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    wanted = sorted(outcome.ask.group.selection.match_labels.items())
    topology = outcome.ask.topology
    lacking = _lacking(topology.labels, topology.label_pairs, wanted, machines)
    return [_column("labels", lacking, machines, _picked([f"{key}={value}" for key, value in wanted]))]


def _drives(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    wanted = sorted(outcome.ask.group.drives)
    topology = outcome.ask.topology
    lacking = _lacking(topology.drives, topology.drive_names, wanted, machines)
    return [_column("drives", lacking, machines, _picked(wanted))]


def _lacking(
    words: "np.ndarray[tuple[int, ...], np.dtype[np.uint64]]",
    table: Sequence[object],
    wanted: Sequence[object],
    machines: Longs,
) -> Longs:
    """(machines,): bit b is set where the machine lacks the b-th wanted thing (as many as are told)."""
    lacking = np.zeros(machines.size, dtype=np.int64)
    for number, item in enumerate(wanted[:_MOST_BITS]):
        if item in table:
            bit = table.index(item)
            missing = (words[machines, bit // 64] >> np.uint64(bit % 64)) & np.uint64(1) == 0
        else:
            missing = np.ones(machines.size, dtype=np.bool_)
        lacking |= missing.astype(np.int64) << number
    return lacking


def _picked(names: Sequence[str]) -> Callable[[int], list[str]]:
    return lambda mask: [name for number, name in enumerate(names) if mask >> number & 1]


def _model(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    topology = outcome.ask.topology

    def name(row: int) -> str:
        return "mixed" if row == MIXED_MODELS else topology.models[row] if row != UNKNOWN else ""

    return [_column("model", topology.model[machines], machines, name)]


def _gpu_memory(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    return [
        _column("memory_bytes", outcome.ask.topology.gpu_memory_min[machines], machines),
        _column("needed_bytes", outcome.ask.group.min_memory_bytes, machines),
    ]


def _needed(outcome: MachineOutcome, machines: Longs) -> Column:
    return _column("needed", outcome.shape.gpus, machines)


def _too_few(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    return [
        _column("of_model", outcome.ask.gpus.of_model[machines], machines),
        _needed(outcome, machines),
    ]


def _faulty(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    gpus = outcome.ask.gpus
    return [
        _column("faulty", gpus.faulty[machines], machines),
        _column("total", gpus.fitting[machines], machines),
        _needed(outcome, machines),
        _gpu_list(outcome, machines, GPU_FAULTY),
    ]


def _suspect(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    gpus = outcome.ask.gpus
    return [
        _column("healthy", gpus.free_healthy[machines], machines),
        _column("free", gpus.free[machines], machines),
        _needed(outcome, machines),
        _gpu_list(outcome, machines, GPU_SUSPECT),
    ]


def _gpu_list(outcome: MachineOutcome, machines: Longs, bit: int) -> Column:
    """The GPUs in that state, by index on the machine (as many as are told)."""
    ask = outcome.ask
    marked = ((ask.snapshot.gpu_state[machines] & bit) != 0) & ask.gpu_fits(machines)
    if bit == GPU_SUSPECT:
        marked &= (ask.snapshot.gpu_state[machines] & GPU_FAULTY) == 0
    index = ask.topology.gpu_index[machines].astype(np.int64)
    told = marked & (index >= 0) & (index < _MOST_BITS)
    mask = np.where(told, np.int64(1) << np.where(told, index, 0), 0).sum(axis=1)
    return _column(
        "gpus", mask, machines, lambda value: [gpu for gpu in range(value.bit_length()) if value >> gpu & 1]
    )


def _busy(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    gpus = outcome.ask.gpus
    return [
        _column("free", gpus.free[machines], machines),
        _column("total", gpus.fitting[machines], machines),
        _needed(outcome, machines),
        _column("held", gpus.held[machines], machines),
    ]


def _cpu(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    return _amounts(
        outcome, machines, outcome.ask.snapshot.cpu_free, outcome.ask.cpu_needed(outcome.shape.gpus)
    )


def _memory(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    return _amounts(
        outcome, machines, outcome.ask.snapshot.memory_free, outcome.ask.memory_needed(outcome.shape.gpus)
    )


def _amounts(outcome: MachineOutcome, machines: Longs, free: Longs, needed: "int | Longs") -> list[Column]:
    every = np.broadcast_to(np.asarray(needed), (outcome.ask.topology.size,))
    return [_column("free", free[machines], machines), _column("needed", every[machines], machines)]


def _ports_present(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    return [_column("ports", ports_present(outcome.ask)[machines], machines)]


def _slow(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    ask, topology = outcome.ask, outcome.ask.topology
    best = np.maximum(best_port_up(ask), best_port_down(ask))
    count = topology.remember((FASTEST_PORTS, ask.kinds), lambda: _fastest_ports(topology, ask.kinds, best))
    return [
        _column("ports", count[machines], machines),
        _column("gbps", best[machines], machines),
        _column("needed", ask.min_gbps, machines),
        _column("fabric", topology.home_fabric[machines], machines, _name_in(topology.fabrics.names)),
    ]


def _fastest_ports(topology: Topology, kinds: tuple[int, ...], best: Ints) -> Longs:
    """(machines,): ports of its best speed."""
    owner = owners(topology.ports)
    counted = _usable_ports(topology, kinds) & (topology.ports.gbps == best[owner])
    return np.bincount(owner[counted], minlength=topology.size)


def _down(outcome: MachineOutcome, machines: Longs) -> list[Column]:
    ask, topology = outcome.ask, outcome.ask.topology
    key = (PORTS_DOWN, ask.kinds, ask.min_gbps)
    mask = topology.remember(key, lambda: _ports_down(topology, ask.kinds, ask.min_gbps, best_port_down(ask)))
    layout = topology.port_layout[machines]

    def names(value: int) -> list[str]:
        told = enumerate(topology.port_layouts[value >> _MOST_PORTS])
        return [name for number, name in told if value >> number & 1]

    return [
        _column("ports", layout.astype(np.int64) << _MOST_PORTS | mask[machines], machines, names),
        _column("gbps", best_port_down(ask)[machines], machines),
    ]


def _ports_down(topology: Topology, kinds: tuple[int, ...], min_gbps: int, best_down: Ints) -> Longs:
    """(machines,): bits of the ports that are down: those that are fast enough, all where none is."""
    ports = topology.ports
    told = (ports.gbps >= min_gbps) | (best_down[owners(ports)] < min_gbps)
    return _port_mask(ports, _usable_ports(topology, kinds) & ~ports.up & told, topology.size)


def _usable_ports(topology: Topology, kinds: tuple[int, ...]) -> Bools:
    usable = on_compute_fabric(topology.ports, topology.fabrics)
    return np.asarray(usable & np.isin(topology.ports.link, kinds))


def _port_mask(ports: Ports, marked: Bools, machines: int) -> Longs:
    """(machines,): bit b is set where the machine's b-th port is marked (as many as are told)."""
    owner = owners(ports)
    number = np.arange(owner.size) - ports.start[owner]
    rows = np.flatnonzero(marked & (number < _MOST_PORTS))
    mask = np.zeros(machines, dtype=np.int64)
    np.bitwise_or.at(mask, owner[rows], np.int64(1) << number[rows])
    return mask


_COLUMNS: Mapping[Rule, Callable[[MachineOutcome, Longs], list[Column]]] = {
    Rule.POOL_NOT_ALLOWED: _pool,
    Rule.NOT_IN_POOLS: _pool,
    Rule.POOL_CAP: _pool,
    Rule.POOL_GUARANTEED: _pool,
    Rule.LABEL_MISSING: _labels,
    Rule.DRIVE_MISSING: _drives,
    Rule.OTHER_MODEL: _model,
    Rule.GPU_MEMORY: _gpu_memory,
    Rule.TOO_FEW_GPUS: _too_few,
    Rule.PORT_NO_FABRIC: _ports_present,
    Rule.PORT_DOWN: _down,
    Rule.PORT_SLOW: _slow,
    Rule.GPUS_FAULTY: _faulty,
    Rule.MEMORY_SHORT: _memory,
    Rule.CPU_SHORT: _cpu,
    Rule.GPUS_BUSY: _busy,
    Rule.GPUS_SUSPECT: _suspect,
}
