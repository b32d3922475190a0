"""Facts about machines as columns: what snapshots are built from, read from the database or taken from a snapshot.

Machines stand in any order; GPUs, ports and labels name theirs by its number in that order (`owner`).
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from placement.arrays import UNKNOWN, Bools, Bytes, Ints, Longs

_Item = TypeVar("_Item", bound=Hashable)

NUMA_ISLANDS = 1 << 30
"""NUMA node n, where no NVLink island is known, is the island NUMA_ISLANDS + n (n is -1 when unknown)."""


@dataclass(frozen=True)
class Coded(Generic[_Item]):
    """A column of few different values: entry i is table[code[i]], none where the code is UNKNOWN."""

    table: tuple[_Item, ...]
    """In any order; values may be unused."""
    code: Ints


@dataclass(frozen=True)
class Gpus:
    owner: Ints
    index: Ints
    id: Longs
    model: Coded[str]
    memory: Longs
    """Bytes."""
    island: Ints
    """The same number: in one NVLink island, or on one NUMA node where no island is known."""
    state: Bytes
    """GPU bits of `placement.snapshot`."""


@dataclass(frozen=True)
class PortRows:
    owner: Ints
    name: Coded[str]
    link: Ints
    """Link layer as `placement.topology` numbers it."""
    up: Bools
    gbps: Ints
    fabric: Coded[str]


@dataclass(frozen=True)
class Owned(Generic[_Item]):
    """Things of which a machine has any number: labels as (key, value), drives."""

    owner: Ints
    item: Coded[_Item]


@dataclass(frozen=True)
class Tables:
    names: tuple[str, ...]
    ids: Longs
    pool: Coded[str]
    rack: Coded[str]
    nvlink_domain: Coded[str]
    state: Bytes
    """`MachineState` bits."""
    cpu_total: Longs
    """Millicores."""
    cpu_free: Longs
    memory_total: Longs
    """Bytes."""
    memory_free: Longs
    gpus: Gpus
    ports: PortRows
    labels: Owned[tuple[str, str]]
    drives: Owned[str]


@dataclass(frozen=True)
class Usage:
    """What changes all day of machines whose hardware stays as it is: their states, and what runs hold of them."""

    names: tuple[str, ...]
    state: Bytes
    cpu_taken: Longs
    """Millicores."""
    memory_taken: Longs
    """Bytes."""
    held: Longs
    """Ids of the GPUs that are held; those of other machines are passed over."""


def coded(values: Iterable[_Item | None]) -> Coded[_Item]:
    """A column of these values; None and "" are none."""
    given = list(values)
    different = dict.fromkeys(given)
    table = tuple(value for value in different if value)
    code = dict.fromkeys(different, UNKNOWN) | {value: row for row, value in enumerate(table)}
    return Coded(table, np.fromiter(map(code.__getitem__, given), dtype=np.int32, count=len(given)))


def ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int32)


def longs(values: Sequence[int]) -> Longs:
    return np.array(values, dtype=np.int64)


def together(one: Tables, other: Tables) -> Tables:
    """All machines of both."""
    by = len(one.names)
    return Tables(
        names=one.names + other.names,
        ids=np.concatenate([one.ids, other.ids]),
        pool=_joined(one.pool, other.pool),
        rack=_joined(one.rack, other.rack),
        nvlink_domain=_joined(one.nvlink_domain, other.nvlink_domain),
        state=np.concatenate([one.state, other.state]),
        cpu_total=np.concatenate([one.cpu_total, other.cpu_total]),
        cpu_free=np.concatenate([one.cpu_free, other.cpu_free]),
        memory_total=np.concatenate([one.memory_total, other.memory_total]),
        memory_free=np.concatenate([one.memory_free, other.memory_free]),
        gpus=_gpus_together(one.gpus, other.gpus, by),
        ports=_ports_together(one.ports, other.ports, by),
        labels=_owned_together(one.labels, other.labels, by),
        drives=_owned_together(one.drives, other.drives, by),
    )


def _joined(one: Coded[_Item], other: Coded[_Item]) -> Coded[_Item]:
    moved = np.where(other.code == UNKNOWN, UNKNOWN, other.code + len(one.table)).astype(np.int32)
    return Coded(one.table + other.table, np.concatenate([one.code, moved]))


def _gpus_together(one: Gpus, other: Gpus, by: int) -> Gpus:
    return Gpus(
        owner=np.concatenate([one.owner, other.owner + np.int32(by)]),
        index=np.concatenate([one.index, other.index]),
        id=np.concatenate([one.id, other.id]),
        model=_joined(one.model, other.model),
        memory=np.concatenate([one.memory, other.memory]),
        island=np.concatenate([one.island, other.island]),
        state=np.concatenate([one.state, other.state]),
    )


def _ports_together(one: PortRows, other: PortRows, by: int) -> PortRows:
    return PortRows(
        owner=np.concatenate([one.owner, other.owner + np.int32(by)]),
        name=_joined(one.name, other.name),
        link=np.concatenate([one.link, other.link]),
        up=np.concatenate([one.up, other.up]),
        gbps=np.concatenate([one.gbps, other.gbps]),
        fabric=_joined(one.fabric, other.fabric),
    )


def _owned_together(one: Owned[_Item], other: Owned[_Item], by: int) -> Owned[_Item]:
    return Owned(
        owner=np.concatenate([one.owner, other.owner + np.int32(by)]), item=_joined(one.item, other.item)
    )
