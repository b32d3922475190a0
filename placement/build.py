"""From facts about machines to the arrays of a snapshot."""

import re
from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import accumulate, chain, pairwise
from typing import TypeVar

import numpy as np

from placement.arrays import UNKNOWN, Bytes, Ints, Longs, Words, index_of, read_only
from placement.facts import GpuFacts, MachineFacts, PortFacts
from placement.snapshot import GPU_FAULTY, GPU_HELD, GPU_PRESENT, GPU_SUSPECT, Snapshot, from_gpu_state
from placement.topology import (
    INFINIBAND,
    MIXED_MODELS,
    ROCE,
    Fabrics,
    Ports,
    Topology,
    members_of,
    port_sums_of,
)

_Item = TypeVar("_Item", bound=Hashable)

_LINKS = {"infiniband": INFINIBAND, "ethernet": ROCE}


def build_snapshot(machines: Iterable[MachineFacts], *, storage_fabrics: Collection[str] = ()) -> Snapshot:
    """The snapshot of these machines. Ports on `storage_fabrics` take no part in placement.

    Raises ValueError when two machines have one name: an allocation could then land on the wrong one.
    """
    facts = sorted(machines, key=lambda machine: machine.name)
    for one, other in pairwise(facts):
        if one.name == other.name:
            raise ValueError(f"Two machines are named {one.name}; names are unique within a cluster.")
    topology = _topology(facts, frozenset(storage_fabrics))
    return from_gpu_state(
        topology,
        state=np.array([int(machine.state) for machine in facts], dtype=np.uint8),
        gpu_state=_gpu_state(facts, topology.gpu_index.shape[1]),
        cpu_free=np.array([machine.cpu_free_millicores for machine in facts], dtype=np.int64),
        memory_free=np.array([machine.memory_free_bytes for machine in facts], dtype=np.int64),
    )


def _topology(facts: Sequence[MachineFacts], storage: frozenset[str]) -> Topology:
    pools = index_of(machine.pool for machine in facts)
    racks = index_of(machine.rack for machine in facts)
    domains = index_of(machine.nvlink_domain for machine in facts)
    models = index_of(gpu.model for machine in facts for gpu in machine.gpus)
    pairs = sorted({pair for machine in facts for pair in machine.labels.items()})
    drives = sorted({drive for machine in facts for drive in machine.drives})
    slots = max((len(machine.gpus) for machine in facts), default=0)
    gpus = [sorted(machine.gpus, key=lambda gpu: gpu.index) for machine in facts]
    ports, fabrics = _ports(facts, storage)
    return Topology(
        names=tuple(machine.name for machine in facts),
        ids=_longs([machine.id for machine in facts]),
        pools=tuple(pools),
        pool=_rows(pools, [machine.pool for machine in facts]),
        models=tuple(models),
        model=_ints([_machine_model(models, machine.gpus) for machine in facts]),
        racks=tuple(racks),
        rack=_rows(racks, [machine.rack for machine in facts]),
        nvlink_domains=tuple(domains),
        nvlink_domain=_rows(domains, [machine.nvlink_domain for machine in facts]),
        label_pairs=tuple(pairs),
        labels=_bitsets(pairs, [machine.labels.items() for machine in facts]),
        drive_names=tuple(drives),
        drives=_bitsets(drives, [machine.drives for machine in facts]),
        cpu_total=_longs([machine.cpu_millicores for machine in facts]),
        memory_total=_longs([machine.memory_bytes for machine in facts]),
        gpus_total=_ints([len(machine.gpus) for machine in facts]),
        gpu_memory_min=_longs([min((gpu.memory_bytes for gpu in row), default=0) for row in gpus]),
        gpu_index=_small(_table(slots, [[gpu.index for gpu in row] for row in gpus], UNKNOWN)),
        gpu_id=_table(slots, [[gpu.id for gpu in row] for row in gpus], 0),
        gpu_model=_small(
            _table(slots, [[models.get(gpu.model, UNKNOWN) for gpu in row] for row in gpus], UNKNOWN)
        ),
        gpu_memory=_table(slots, [[gpu.memory_bytes for gpu in row] for row in gpus], 0),
        gpu_island=_small(_table(slots, [_islands(row) for row in gpus], UNKNOWN)),
        fabrics=fabrics,
        ports=ports,
        port_sums=port_sums_of(ports, fabrics),
        members=members_of(ports, fabrics),
    )


def _ports(facts: Sequence[MachineFacts], storage: frozenset[str]) -> tuple[Ports, Fabrics]:
    ports = [port for machine in facts for port in sorted(machine.ports, key=_in_number_order)]
    keys = [_fabric_key(port) for port in ports]
    rows = {key: row for row, key in enumerate(sorted({key for key in keys if key is not None}))}
    fabrics = Fabrics(
        names=tuple(name for name, _ in rows),
        link=_ints([link for _, link in rows]),
        storage=read_only(np.array([name in storage for name, _ in rows], dtype=np.bool_)),
    )
    flat = Ports(
        start=_ints(list(accumulate((len(machine.ports) for machine in facts), initial=0))),
        names=tuple(port.name for port in ports),
        link=_ints([_LINKS[port.link] for port in ports]),
        up=read_only(np.array([port.up for port in ports], dtype=np.bool_)),
        gbps=_ints([max(port.gbps, 0) for port in ports]),
        fabric=_ints([UNKNOWN if key is None else rows[key] for key in keys]),
    )
    return flat, fabrics


def _fabric_key(port: PortFacts) -> tuple[str, int] | None:
    if not port.fabric and port.link == "infiniband":
        return None
    return (port.fabric or "", _LINKS[port.link])


def _in_number_order(port: PortFacts) -> list[tuple[int, str]]:
    """mlx5_2 before mlx5_10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", port.name)]


def _gpu_state(facts: Sequence[MachineFacts], slots: int) -> Bytes:
    rows = [[_gpu_bits(gpu) for gpu in sorted(machine.gpus, key=lambda gpu: gpu.index)] for machine in facts]
    return _table(slots, rows, 0).astype(np.uint8)


def _gpu_bits(gpu: GpuFacts) -> int:
    return GPU_PRESENT | gpu.held * GPU_HELD | gpu.suspect * GPU_SUSPECT | gpu.faulty * GPU_FAULTY


def _machine_model(models: dict[str, int], gpus: Sequence[GpuFacts]) -> int:
    kinds = {gpu.model for gpu in gpus}
    if len(kinds) > 1:
        return MIXED_MODELS
    return models.get(kinds.pop(), UNKNOWN) if kinds else UNKNOWN


def _islands(gpus: Sequence[GpuFacts]) -> list[int]:
    """An island number per GPU. NUMA nodes count only where no NVLink island is known, and never collide with one."""
    keys = [(0, gpu.island) if gpu.island >= 0 else (1, gpu.numa) for gpu in gpus]
    numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
    return [numbers[key] for key in keys]


def _ints(values: Sequence[int]) -> Ints:
    return read_only(np.array(values, dtype=np.int32))


def _longs(values: Sequence[int]) -> Longs:
    return read_only(np.array(values, dtype=np.int64))


def _table(slots: int, rows: Sequence[Sequence[int]], filler: int) -> Longs:
    """(rows, slots): rows of unequal length, filled up on the right."""
    filled = [[*row, *[filler] * (slots - len(row))] for row in rows]
    return read_only(np.array(filled, dtype=np.int64).reshape(len(rows), slots))


def _small(table: Longs) -> Ints:
    return read_only(table.astype(np.int32))


def _rows(table: dict[str, int], names: Sequence[str | None]) -> Ints:
    return _ints([table.get(name or "", UNKNOWN) for name in names])


def _bitsets(table: Sequence[_Item], rows: Sequence[Collection[_Item]]) -> Words:
    position = {item: bit for bit, item in enumerate(table)}
    words = np.zeros((len(rows), max(1, -(-len(table) // 64))), dtype=np.uint64)
    owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    bits = np.array([position[item] for item in chain.from_iterable(rows)], dtype=np.uint64)
    np.bitwise_or.at(words, (owner, bits // 64), np.uint64(1) << (bits % 64))
    return read_only(words)
