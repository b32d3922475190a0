"""The snapshot after some machines have changed, without reading the others again.

The result is the same, array by array, as a snapshot built anew from everything. Where no table is renumbered (a run
is placed or ends, a port flaps, a machine moves to another known rack) only the rows of the changed machines are
written; arrays in which nothing changed, and the whole topology with what it remembers, are kept.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from placement.arrays import UNKNOWN, Ints, Longs, read_only
from placement.assemble import assemble, storage_marks
from placement.snapshot import GPU_HELD, Snapshot, from_gpu_state
from placement.tables import Tables, Usage, together
from placement.topology import (
    MIXED_MODELS,
    Fabrics,
    Members,
    PortSums,
    Topology,
    members_of,
    port_sums_of,
    ports_at,
)
from placement.untable import bits_set, tables_of

_Array = np.ndarray[Any, Any]
_Item = TypeVar("_Item", str, tuple[str, str], tuple[str, int])


class _Renumber(Exception):
    """A name is new or no longer used, or a machine has more or fewer parts: rows don't fit any more."""


def patched(
    base: Snapshot, changed: Tables, *, gone: Collection[str] = (), storage_fabrics: Collection[str] = ()
) -> Snapshot:
    """`base` with the machines in `changed` as they are now, those it lacks added, and those in `gone` removed.

    `gone` may hold names that `changed` holds too: that name belongs to another machine now.
    `storage_fabrics`: all of them, as for `build_snapshot`.
    """
    base = _storage_set(base, storage_fabrics)
    if not changed.names and not gone:
        return base
    fresh = assemble(changed, storage_fabrics=storage_fabrics)
    if not set(gone) - set(fresh.names):
        try:
            return _rows_set(base, fresh)
        except _Renumber:
            pass
    left = set(base.names).difference(gone, fresh.names)
    rows = np.array([row for row, name in enumerate(base.names) if name in left], dtype=np.int64)
    return assemble(together(tables_of(base, rows), changed), storage_fabrics=storage_fabrics)


def _storage_set(base: Snapshot, storage: Collection[str]) -> Snapshot:
    topology = base.topology
    marks = storage_marks(topology.fabrics.names, storage)
    if np.array_equal(marks, topology.fabrics.storage):
        return base
    fabrics = replace(topology.fabrics, storage=marks)
    changes = {
        "fabrics": fabrics,
        "port_sums": port_sums_of(topology.ports, fabrics),
        "members": members_of(topology.ports, fabrics),
    }
    return replace(base, topology=_topology_with(topology, changes))


def _topology_with(topology: Topology, changes: dict[str, Any]) -> Topology:
    """With nothing remembered of the old one, but for the rows of its names, which stay."""
    memory: dict[str, Any] = {each.name: {} for each in fields(topology) if each.name.startswith("_")}
    fresh = replace(topology, **memory, **changes)
    vars(fresh)["row_of"] = topology.row_of
    return fresh


def _rows_set(base: Snapshot, fresh: Snapshot) -> Snapshot:
    """Raises _Renumber when the tables of `base` can't say it."""
    row_of = base.topology.row_of
    try:
        rows = np.array([row_of[name] for name in fresh.names], dtype=np.int64)
    except KeyError as new:
        raise _Renumber from new
    return _states_set(base, fresh, rows, _topology_set(base.topology, fresh.topology, rows))


def used(base: Snapshot, usage: Usage) -> Snapshot:
    """`base` with machines that it has used so now."""
    topology = base.topology
    rows = np.array([topology.row_of[name] for name in usage.names], dtype=np.int64)
    # Only slots without a GPU have one id.
    held = np.isin(topology.gpu_id[rows], usage.held, assume_unique=True)
    held &= topology.gpu_index[rows] != UNKNOWN
    fresh = from_gpu_state(
        topology,
        state=usage.state,
        gpu_state=np.where(held, base.gpu_state[rows] | GPU_HELD, base.gpu_state[rows] & ~np.uint8(GPU_HELD)),
        cpu_free=topology.cpu_total[rows] - usage.cpu_taken,
        memory_free=topology.memory_total[rows] - usage.memory_taken,
    )
    return _states_set(base, fresh, rows, topology)


def _states_set(base: Snapshot, fresh: Snapshot, rows: Longs, topology: Topology) -> Snapshot:
    """With the machines in these rows in the states that `fresh` has them in, one after the other."""
    change = _Change(base, rows)
    for name in ("state", "free_healthy", "free_suspect", "suspect", "faulty", "cpu_free", "memory_free"):
        change.set(name, getattr(fresh, name))
    change.set("gpu_state", _widened(fresh.gpu_state, topology.gpu_index.shape[1], 0))
    if topology is base.topology and not change.arrays:
        return base
    return replace(base, topology=topology, **change.arrays)


@dataclass
class _Change:
    """Arrays of `of` in which some rows are different now."""

    of: Any
    rows: Longs
    arrays: dict[str, Any] = field(default_factory=dict)

    def set(self, name: str, values: _Array) -> bool:
        """True when these values for the rows differ from what they were."""
        was = getattr(self.of, name)
        if np.array_equal(was[..., self.rows] if name in _BY_LINK else was[self.rows], values):
            return False
        array = was.copy()
        if name in _BY_LINK:
            array[:, self.rows] = values
        else:
            array[self.rows] = values
        self.arrays[name] = read_only(array)
        return True


_BY_LINK = frozenset(each.name for each in fields(PortSums))
"""Arrays whose second axis are the machines."""


def _topology_set(base: Topology, fresh: Topology, rows: Longs) -> Topology:
    change = _Change(base, rows)
    for name in ("ids", "cpu_total", "memory_total", "gpus_total", "gpu_memory_min"):
        change.set(name, getattr(fresh, name))
    for table, column in (("pools", "pool"), ("racks", "rack"), ("nvlink_domains", "nvlink_domain")):
        row = _row_there(getattr(fresh, table), getattr(base, table))
        if change.set(column, row[getattr(fresh, column)]):
            _require_used(change.arrays[column], len(getattr(base, table)))
    for table, column in (("label_pairs", "labels"), ("drive_names", "drives")):
        bits = _bits_there(fresh, base, table, column)
        if change.set(column, bits):
            _require_bits_used(change.arrays[column], len(getattr(base, table)))
    _gpus_set(change, base, fresh)
    change.arrays |= _ports_set(base, fresh, rows)
    return _topology_with(base, change.arrays) if change.arrays else base


def _row_there(table: Sequence[_Item], there: Sequence[_Item]) -> Ints:
    """Row of each value of `table` in the sorted table `there`, then what the negative numbers of columns stay."""
    rows: list[int] = [bisect_left(there, value) for value in table]
    if any(row == len(there) or there[row] != value for row, value in zip(rows, table, strict=True)):
        raise _Renumber
    return np.array([*rows, MIXED_MODELS, UNKNOWN], dtype=np.int32)


def _require_used(column: _Array, size: int) -> None:
    if not np.bincount(column[column >= 0], minlength=size).all():
        raise _Renumber


def _bits_there(fresh: Topology, base: Topology, table: str, column: str) -> _Array:
    position = _row_there(getattr(fresh, table), getattr(base, table)).astype(np.uint64)
    bits: _Array = np.zeros((fresh.size, getattr(base, column).shape[1]), dtype=np.uint64)
    machine, bit = bits_set(getattr(fresh, column))
    to = position[bit]
    np.bitwise_or.at(bits, (machine, to // 64), np.uint64(1) << (to % 64))
    return bits


def _require_bits_used(words: _Array, size: int) -> None:
    used = np.bitwise_or.reduce(words, axis=0)
    if sum(int(word).bit_count() for word in used) < size:
        raise _Renumber


def _gpus_set(change: _Change, base: Topology, fresh: Topology) -> None:
    slots = base.gpu_index.shape[1]
    if fresh.gpu_index.shape[1] > slots:
        raise _Renumber
    model = _row_there(fresh.models, base.models)
    change.set("model", model[fresh.model])
    if change.set("gpu_model", _widened(model[fresh.gpu_model], slots, UNKNOWN)):
        _require_used(change.arrays["gpu_model"], len(base.models))
    for name, none in (("gpu_index", UNKNOWN), ("gpu_id", 0), ("gpu_memory", 0), ("gpu_island", UNKNOWN)):
        change.set(name, _widened(getattr(fresh, name), slots, none))
    if int(change.arrays.get("gpus_total", base.gpus_total).max(initial=0)) != slots:
        raise _Renumber


def _widened(table: _Array, slots: int, filler: int) -> _Array:
    missing = slots - table.shape[1]
    return np.pad(table, ((0, 0), (0, missing)), constant_values=filler) if missing else table


def _ports_set(base: Topology, fresh: Topology, rows: Longs) -> dict[str, Any]:
    """What changes of the topology with the ports of these machines."""
    if not np.array_equal(np.diff(base.ports.start)[rows], np.diff(fresh.ports.start)):
        raise _Renumber
    _, at = ports_at(base.ports, rows)
    if fresh.ports.names != tuple(base.ports.names[row] for row in at.tolist()):
        raise _Renumber
    fabric = _row_there(_keys(fresh.fabrics), _keys(base.fabrics))
    change = _Change(base.ports, at)
    change.set("link", fresh.ports.link)
    moved = change.set("fabric", fabric[fresh.ports.fabric])
    for name in ("up", "gbps"):
        change.set(name, getattr(fresh.ports, name))
    if not change.arrays:
        return {}
    ports = replace(base.ports, **change.arrays)
    if moved:
        _require_used(ports.fabric, len(base.fabrics.names))
    return {
        "ports": ports,
        "port_sums": _sums_set(base.port_sums, fresh.port_sums, rows),
        "members": members_of(ports, base.fabrics) if moved else _members_set(base, fresh, rows, fabric),
    }


def _keys(fabrics: Fabrics) -> list[tuple[str, int]]:
    return list(zip(fabrics.names, fabrics.link.tolist(), strict=True))


def _sums_set(base: PortSums, fresh: PortSums, rows: Longs) -> PortSums:
    change = _Change(base, rows)
    for name in _BY_LINK:
        change.set(name, getattr(fresh, name))
    return replace(base, **change.arrays)


def _members_set(base: Topology, fresh: Topology, rows: Longs, fabric: Ints) -> Members:
    """Speeds of the same memberships."""
    members, new = base.members, fresh.members
    known = members.fabric.astype(np.int64) * base.size + members.machine
    change = _Change(members, np.searchsorted(known, fabric[new.fabric] * base.size + rows[new.machine]))
    change.set("gbps", new.gbps)
    return replace(members, **change.arrays)
