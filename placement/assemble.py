"""From columns of facts to the arrays of a snapshot. Vectorised: nothing here loops over machines."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from placement.arrays import UNKNOWN, Ints, Longs, Words, lengths, read_only, starts
from placement.snapshot import Snapshot, from_gpu_state
from placement.tables import Coded, Gpus, Owned, PortRows, Tables
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

_Item = TypeVar("_Item", str, tuple[str, str])


def assemble(tables: Tables, *, storage_fabrics: Collection[str]) -> Snapshot:
    """The snapshot of these machines. Ports on `storage_fabrics` take no part in placement.

    Raises ValueError when two machines have one name: an allocation could then land on the wrong one.
    """
    order = np.array(sorted(range(len(tables.names)), key=tables.names.__getitem__), dtype=np.int64)
    names = tuple(tables.names[row] for row in order.tolist())
    for one, other in pairwise(names):
        if one == other:
            raise ValueError(f"Two machines are named {one}; names are unique within a cluster.")
    rank = np.empty(order.size, dtype=np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    gpus = _Slotted.of(tables.gpus, rank)
    return from_gpu_state(
        _topology(tables, names, order, rank, gpus, frozenset(storage_fabrics)),
        state=tables.state[order],
        gpu_state=gpus.table(tables.gpus.state, 0).astype(np.uint8),
        cpu_free=tables.cpu_free[order],
        memory_free=tables.memory_free[order],
    )


def _topology(
    tables: Tables,
    names: tuple[str, ...],
    order: Longs,
    rank: Ints,
    gpus: "_Slotted",
    storage: frozenset[str],
) -> Topology:
    pools, pool = numbered(tables.pool)
    racks, rack = numbered(tables.rack)
    domains, domain = numbered(tables.nvlink_domain)
    models, model = numbered(tables.gpus.model)
    pairs, labels = _bitsets(tables.labels, rank)
    drive_names, drives = _bitsets(tables.drives, rank)
    ports, fabrics = _ports(tables.ports, rank, storage)
    return Topology(
        names=names,
        ids=read_only(tables.ids[order]),
        pools=pools,
        pool=read_only(pool[order]),
        models=models,
        model=read_only(_machine_models(gpus, model)),
        racks=racks,
        rack=read_only(rack[order]),
        nvlink_domains=domains,
        nvlink_domain=read_only(domain[order]),
        label_pairs=pairs,
        labels=labels,
        drive_names=drive_names,
        drives=drives,
        cpu_total=read_only(tables.cpu_total[order]),
        memory_total=read_only(tables.memory_total[order]),
        gpus_total=read_only(gpus.count.astype(np.int32)),
        gpu_memory_min=read_only(gpus.lowest(tables.gpus.memory, none=0)),
        gpu_index=read_only(gpus.table(tables.gpus.index, UNKNOWN).astype(np.int32)),
        gpu_id=read_only(gpus.table(tables.gpus.id, 0)),
        gpu_model=read_only(gpus.table(model, UNKNOWN).astype(np.int32)),
        gpu_memory=read_only(gpus.table(tables.gpus.memory, 0)),
        gpu_island=read_only(gpus.table(_islands(gpus, tables.gpus.island), UNKNOWN).astype(np.int32)),
        fabrics=fabrics,
        ports=ports,
        port_sums=port_sums_of(ports, fabrics),
        members=members_of(ports, fabrics),
    )


def numbered(column: Coded[_Item]) -> tuple[tuple[_Item, ...], Ints]:
    """The sorted table of the values in use, and the column by rows of it."""
    used = np.bincount(column.code + 1, minlength=len(column.table) + 1)[1:].astype(bool)
    table = tuple(sorted({column.table[code] for code in np.flatnonzero(used).tolist()}))
    row_of: dict[_Item, int] = {value: row for row, value in enumerate(table)}
    # The extra last entry is read by the code of none.
    row = np.array([*(row_of.get(value, UNKNOWN) for value in column.table), UNKNOWN], dtype=np.int32)
    return table, row[column.code]


@dataclass(frozen=True)
class _Slotted:
    """Where each GPU's facts go: its machine's row, and the slot by its index there."""

    order: Longs
    """GPUs as given, in the order of machines, then indices."""
    row: Ints
    """Of each in that order, likewise the slot."""
    slot: Longs
    count: Longs
    """(machines,): GPUs."""

    @classmethod
    def of(cls, gpus: Gpus, rank: Ints) -> "_Slotted":
        row = rank[gpus.owner]
        order = np.lexsort((gpus.index, row))
        count = np.bincount(row, minlength=rank.size)
        first = np.cumsum(count) - count
        return cls(order, row[order], np.arange(order.size) - first[row[order]], count)

    def table(self, values: "np.ndarray[Any, Any]", filler: int) -> Longs:
        """(machines, slots): values of GPUs as given, filled up on the right."""
        table = np.full((self.count.size, int(self.count.max(initial=0))), filler, dtype=np.int64)
        table[self.row, self.slot] = values[self.order]
        return table

    def lowest(self, values: "np.ndarray[Any, Any]", *, none: int) -> Longs:
        """(machines,): the smallest value of its GPUs, `none` without any."""
        low = np.full(self.count.size, none, dtype=np.int64)
        first = np.flatnonzero(self.slot == 0)
        if first.size:
            low[self.row[first]] = np.minimum.reduceat(values[self.order], first)
        return low


def _machine_models(gpus: _Slotted, model: Ints) -> Ints:
    least, most = gpus.lowest(model, none=UNKNOWN), -gpus.lowest(-model, none=-UNKNOWN)
    return np.where(least == most, least, MIXED_MODELS).astype(np.int32)


def _islands(gpus: _Slotted, island: Ints) -> Ints:
    """An island number per GPU as given, counted from 0 on each machine in the order of the numbers given."""
    row = np.empty(island.size, dtype=np.int32)
    row[gpus.order] = gpus.row
    order = np.lexsort((island, row))
    begins = np.zeros(island.size, dtype=np.int64)
    begins[starts(row[order], island[order])] = 1
    count = np.cumsum(begins)
    first = starts(row[order])
    number = np.empty(island.size, dtype=np.int32)
    number[order] = count - np.repeat(count[first], lengths(first, island.size))
    return number


def _ports(rows: PortRows, rank: Ints, storage: frozenset[str]) -> tuple[Ports, Fabrics]:
    owner = rank[rows.owner]
    order = np.lexsort((_number_order(rows.name.table)[rows.name.code], owner))
    fabrics, fabric = _fabrics(rows, storage)
    name = rows.name.table
    ports = Ports(
        start=read_only(np.append(0, np.cumsum(np.bincount(owner, minlength=rank.size))).astype(np.int32)),
        names=tuple(name[code] for code in rows.name.code[order].tolist()),
        link=read_only(rows.link[order]),
        up=read_only(rows.up[order]),
        gbps=read_only(np.maximum(rows.gbps[order], 0)),
        fabric=read_only(fabric[order]),
    )
    return ports, fabrics


def _fabrics(rows: PortRows, storage: frozenset[str]) -> tuple[Fabrics, Ints]:
    """The fabrics by name and link layer, and each port's row there. RoCE ports without a name share the name ""."""
    # Two numbers a name, one for each link layer; the last two are those of no name.
    names = [*rows.fabric.table, ""]
    code = np.where(rows.fabric.code == UNKNOWN, len(names) - 1, rows.fabric.code) * 2 + rows.link
    nowhere = (rows.fabric.code == UNKNOWN) & (rows.link == INFINIBAND)
    used = np.bincount(code[~nowhere], minlength=2 * len(names)).astype(bool)
    keys = {(names[number // 2], number % 2) for number in np.flatnonzero(used).tolist()}
    row_of = {key: row for row, key in enumerate(sorted(keys))}
    row = np.array(
        [row_of.get((name, link), UNKNOWN) for name in names for link in (INFINIBAND, ROCE)], dtype=np.int32
    )
    fabrics = Fabrics(
        names=tuple(name for name, _ in row_of),
        link=read_only(np.array([link for _, link in row_of], dtype=np.int32)),
        storage=storage_marks([name for name, _ in row_of], storage),
    )
    return fabrics, np.where(nowhere, UNKNOWN, row[code]).astype(np.int32)


def storage_marks(names: Collection[str], storage: Collection[str]) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """(fabrics,): which of them an administrator keeps for storage."""
    return read_only(np.array([name in storage for name in names], dtype=np.bool_))


def _number_order(names: tuple[str, ...]) -> Ints:
    """The place of each port name in an order in which mlx5_2 comes before mlx5_10."""
    ordered = sorted(range(len(names)), key=lambda row: (_by_number(names[row]), names[row]))
    place = np.empty(len(names), dtype=np.int32)
    place[ordered] = np.arange(len(names), dtype=np.int32)
    return place


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _bitsets(owned: Owned[_Item], rank: Ints) -> tuple[tuple[_Item, ...], Words]:
    table, bit = numbered(owned.item)
    words = np.zeros((rank.size, max(1, -(-len(table) // 64))), dtype=np.uint64)
    bits = bit.astype(np.uint64)
    np.bitwise_or.at(words, (rank[owned.owner], bits // 64), np.uint64(1) << (bits % 64))
    return table, read_only(words)
