"""What does not change while runs come and go: names, hardware, ports, where machines stand.

Everything is addressed by dense index: a machine is a row, sorted by name; racks, NVLink domains, pools and models are
rows of sorted name tables, so that a smaller index is also the earlier name. `UNKNOWN` (-1) means none.

Fabrics are per port. A row of the fabric tables is a pair (name, link layer): a label may give InfiniBand and RoCE
ports one name, and still no traffic passes between the two. What joins machines are *memberships*: a machine is a
member of every compute fabric on which it has a port.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from placement.arrays import UNKNOWN, Bools, Ints, Longs, Words, read_only, starts
from placement.request import Level

_Kept = TypeVar("_Kept")

INFINIBAND, ROCE = 0, 1
"""Link layers, as rows of the per-kind port tables."""

MOST_REMEMBERED = 512
"""Things remembered for each topology, most of them a few masks: of 10,000 machines they are 10 MB then."""

MOST_PASSING = 96
"""Things remembered beside these that depend on one run's own choice of machines, or on what a single pass reserved."""

MOST_JOINED = 160
"""Things remembered that only join others: 2 MB of 10,000 machines."""

MOST_NAMED = 1280
"""Runs' own choices of a few machines, looked up by name: 1 MB, for as many runs as wait where many do."""

MIXED_MODELS = -2
"""Model of a machine whose GPUs differ."""

NO_PORT = -1
"""Speed of "no such port"; an unknown speed is 0."""


@dataclass(frozen=True)
class Fabrics:
    """Tables over fabrics, sorted by (name, link layer)."""

    names: tuple[str, ...]
    """"" is the routed network of all RoCE ports without a fabric: it joins, but is no place to keep within."""
    link: Ints
    storage: Bools
    """Marked as storage by an administrator: takes no part in placement."""

    @cached_property
    def named(self) -> Bools:
        return np.array([bool(name) for name in self.names], dtype=np.bool_)


@dataclass(frozen=True)
class Ports:
    """All RDMA ports, flat, in machine order; machine i has rows start[i] to start[i + 1]."""

    start: Ints
    names: tuple[str, ...]
    link: Ints
    up: Bools
    gbps: Ints
    fabric: Ints
    """Row of the fabric tables; UNKNOWN for an InfiniBand port whose subnet manager is not known."""


@dataclass(frozen=True)
class PortSums:
    """Per link layer and machine, shape (2, machines): what the port rules compare."""

    present: Ints
    """Ports of this kind, wherever they lead."""
    usable: Ints
    """Ports on a known compute fabric."""
    best_up: Ints
    """Gb/s of the fastest usable port that is up, NO_PORT when none is."""
    best_down: Ints
    """Gb/s of the fastest usable port that is down, NO_PORT when none is."""


@dataclass(frozen=True)
class Members:
    """Memberships: one row for each (machine, compute fabric), sorted by fabric, then machine."""

    machine: Ints
    fabric: Ints
    gbps: Ints
    """Fastest port that is up, NO_PORT when none is."""


@dataclass(frozen=True)
class Grouping:
    """Machines joined into domains. Rows are sorted by domain, then machine; a machine on two fabrics has two rows."""

    machine: Longs
    """Of 64 bits, as numpy indexes with: what is asked of every row is looked up without a copy of these."""
    domain: Ints
    """Domain of each row, 0 … domains - 1."""
    domains: int
    gbps: Ints | None
    """Speed of each row's membership; None when no fabric is part of the grouping."""
    fabric: Ints
    """Per domain, UNKNOWN when fabrics play no part; likewise the next two."""
    rack: Ints
    nvlink_domain: Ints
    part: Ints
    """Per row: its rack inside its domain. Machines without a rack are parts of their own."""
    domain_of: Ints
    """Domain of each part."""


def _equal(one: object, other: object) -> bool:
    """Of arrays, and of dataclasses that hold some, field by field."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if is_dataclass(one) and type(one) is type(other):
        return all(
            _equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(one) if each.compare
        )
    return one == other


@dataclass(frozen=True)
class Topology:
    """The fixed part of a snapshot. All arrays are read-only."""

    names: tuple[str, ...]
    ids: Longs
    pools: tuple[str, ...]
    pool: Ints
    models: tuple[str, ...]
    model: Ints
    """Row of `models`; UNKNOWN without GPUs, MIXED_MODELS where they differ."""
    racks: tuple[str, ...]
    rack: Ints
    nvlink_domains: tuple[str, ...]
    nvlink_domain: Ints
    label_pairs: tuple[tuple[str, str], ...]
    labels: Words
    """(machines, words): bit b of word w is pair 64 w + b."""
    drive_names: tuple[str, ...]
    drives: Words
    cpu_total: Longs
    """Millicores."""
    memory_total: Longs
    """Bytes."""
    gpus_total: Ints
    gpu_memory_min: Longs
    """Bytes of the machine's smallest GPU, 0 without GPUs."""
    gpu_index: Ints
    """(machines, slots): the index on the machine; UNKNOWN where the machine has no GPU in that slot."""
    gpu_id: Longs
    gpu_model: Ints
    gpu_memory: Longs
    gpu_island: Ints
    """(machines, slots): NVLink island, else NUMA node, numbered per machine."""
    fabrics: Fabrics
    ports: Ports
    port_sums: PortSums
    members: Members
    _groupings: dict[frozenset[Level], Grouping] = field(default_factory=dict, repr=False, compare=False)
    _remembered: dict[tuple[Hashable, ...], Any] = field(default_factory=dict, repr=False, compare=False)
    _passing: dict[tuple[Hashable, ...], Any] = field(default_factory=dict, repr=False, compare=False)
    _joined: dict[tuple[Hashable, ...], Any] = field(default_factory=dict, repr=False, compare=False)
    _named: dict[tuple[Hashable, ...], Longs] = field(default_factory=dict, repr=False, compare=False)

    @property
    def size(self) -> int:
        return len(self.names)

    def same_as(self, other: "Topology") -> bool:
        """Whether both say the same of every machine."""
        return _equal(self, other)

    @cached_property
    def most_gpus(self) -> int:
        """GPUs of the machine that has most."""
        return int(self.gpus_total.max(initial=0))

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Machine name → row."""
        return {name: row for row, name in enumerate(self.names)}

    @cached_property
    def pool_of(self) -> tuple[str, ...]:
        """The name of each machine's pool; "" where it is in none."""
        return tuple("" if pool == UNKNOWN else self.pools[pool] for pool in self.pool.tolist())

    def rows_named(self, names: Collection[str]) -> Longs:
        """Rows of the machines with these names, in no order; names that the cluster lacks are passed over."""
        row_of = self.row_of
        return np.array([row_of[name] for name in names if name in row_of], dtype=np.int64)

    def rows_kept(self, names: frozenset[str]) -> Longs:
        """The same of a few names that a run gives: it waits for many passes and gives the same each time."""
        return _recall(self._named, MOST_NAMED, (names,), lambda: self.rows_named(names))

    @cached_property
    def slot_of(self) -> Ints:
        """(machines + 1, indices + 1): the slot of the GPU with that index on the machine; UNKNOWN where there is none.

        The last row and the last column, read by machines and GPUs that the cluster lacks, say so of every one.
        """
        rows, slots = np.nonzero(self.gpu_index != UNKNOWN)
        index = self.gpu_index[rows, slots]
        table = np.full((self.size + 1, int(index.max(initial=-1)) + 2), UNKNOWN, dtype=np.int32)
        table[rows, index] = slots
        return read_only(table)

    @cached_property
    def mixed(self) -> Ints:
        """Rows of the machines whose GPUs differ in model or memory."""
        present = self.gpu_index != UNKNOWN
        uneven = (present & (self.gpu_memory != self.gpu_memory_min[:, None])).any(axis=1)
        return np.flatnonzero((self.model == MIXED_MODELS) | uneven).astype(np.int32)

    @cached_property
    def own_rack(self) -> Ints:
        """The rack, or a number of its own for a machine without one: such machines are never grouped."""
        alone = len(self.racks) + np.arange(self.size, dtype=np.int32)
        return read_only(np.where(self.rack == UNKNOWN, alone, self.rack).astype(np.int32))

    @property
    def racks_and_alone(self) -> int:
        """One more than the largest number in `own_rack`."""
        return len(self.racks) + self.size

    @cached_property
    def home_fabric(self) -> Ints:
        """The fabric on which a machine has most ports, the first by name among equals: its place for `spread`."""
        return read_only(self._home_fabric())

    def _home_fabric(self) -> Ints:
        home = np.full(self.size, UNKNOWN, dtype=np.int32)
        ports, fabrics = self.ports, self.fabrics
        rows = np.flatnonzero(on_compute_fabric(ports, fabrics))
        rows = rows[fabrics.named[ports.fabric[rows]]]
        if rows.size:
            table = np.zeros((self.size, len(fabrics.names)), dtype=np.int32)
            np.add.at(table, (owners(ports)[rows], ports.fabric[rows]), 1)
            home = np.where(table.any(axis=1), table.argmax(axis=1), UNKNOWN).astype(np.int32)
        return home

    @cached_property
    def port_layouts(self) -> tuple[tuple[str, ...], ...]:
        """The different lists of port names that machines have."""
        return tuple(dict.fromkeys(self._port_names()))

    @cached_property
    def port_layout(self) -> Ints:
        """(machines,): row of `port_layouts`."""
        row = {names: number for number, names in enumerate(self.port_layouts)}
        return read_only(np.array([row[names] for names in self._port_names()], dtype=np.int32))

    def _port_names(self) -> Iterable[tuple[str, ...]]:
        bounds = self.ports.start.tolist()
        return (self.ports.names[start:end] for start, end in pairwise(bounds))

    def remember(
        self, key: tuple[Hashable, ...], make: Callable[[], _Kept], *, passing: bool = False
    ) -> _Kept:
        """What follows from the topology and the key alone (arrays over machines), made once for each key.

        What was not asked for the longest time makes room. `passing`: the key is one run's or one pass's; such things
        never push out the lasting ones.
        """
        if passing:
            return _recall(self._passing, MOST_PASSING, key, make)
        return _recall(self._remembered, MOST_REMEMBERED, key, make)

    def remember_joined(self, key: tuple[Hashable, ...], make: Callable[[], _Kept]) -> _Kept:
        """Likewise what is soon made anew of things that are remembered; it never pushes these out."""
        return _recall(self._joined, MOST_JOINED, key, make)

    def grouping(self, levels: Iterable[Level]) -> Grouping:
        """Machines joined by all the given levels at once; by none of them: one domain of all machines.

        A machine that lacks one of the levels is in no domain. Computed once per topology.
        """
        key = frozenset(levels)
        found = self._groupings.get(key)
        if found is None:
            found = self._groupings[key] = self._group(key)
        return found

    def _group(self, levels: frozenset[Level]) -> Grouping:
        with_fabric = "fabric" in levels
        machine = self.members.machine if with_fabric else np.arange(self.size, dtype=np.int32)
        nowhere = np.full(machine.size, UNKNOWN, dtype=np.int32)
        places = np.stack(
            [
                self.members.fabric if with_fabric else nowhere,
                self.rack[machine] if "rack" in levels else nowhere,
                self.nvlink_domain[machine] if "nvlink_domain" in levels else nowhere,
            ]
        )
        asked = np.array([with_fabric, "rack" in levels, "nvlink_domain" in levels])
        rows = np.flatnonzero((places[asked] != UNKNOWN).all(axis=0))
        # Rows are in machine order within a fabric already, and np.lexsort is stable: domain first, then machine.
        rows = rows[np.lexsort(places[::-1, rows])]
        domains, inverse = np.unique(places[:, rows], axis=1, return_inverse=True)
        domain = inverse.reshape(-1).astype(np.int32)
        racks = self.racks_and_alone
        parts, part = np.unique(
            domain.astype(np.int64) * racks + self.own_rack[machine[rows]], return_inverse=True
        )
        return Grouping(
            machine=read_only(machine[rows].astype(np.int64)),
            domain=read_only(domain),
            part=read_only(part.astype(np.int32)),
            domain_of=read_only((parts // max(racks, 1)).astype(np.int32)),
            domains=domains.shape[1],
            gbps=read_only(self.members.gbps[rows]) if with_fabric else None,
            fabric=read_only(domains[0]),
            rack=read_only(domains[1]),
            nvlink_domain=read_only(domains[2]),
        )

    @cached_property
    def repaired(self) -> "Topology":
        """The same cluster with every port up, at the last speed known."""
        sums, ports = self.port_sums, replace(self.ports, up=read_only(np.ones_like(self.ports.up)))
        best = read_only(np.maximum(sums.best_up, sums.best_down))
        none = read_only(np.full_like(best, NO_PORT))
        return replace(
            self,
            ports=ports,
            port_sums=replace(sums, best_up=best, best_down=none),
            members=members_of(ports, self.fabrics),
            _groupings={},
            _remembered={},
            _passing={},
            _joined={},
        )


def _recall(
    kept: dict[tuple[Hashable, ...], Any], most: int, key: tuple[Hashable, ...], make: Callable[[], _Kept]
) -> _Kept:
    """What is kept under this key; made where it is not, the one not asked for the longest time makes room."""
    found: _Kept | None = kept.pop(key, None)
    if found is None:
        found = make()
        if isinstance(found, np.ndarray):
            read_only(found)
        if len(kept) >= most:
            kept.pop(next(iter(tuple(kept))), None)  # a copy: another thread may be adding one
    kept[key] = found
    return found


def owners(ports: Ports) -> Ints:
    """Machine row of each port."""
    return np.repeat(np.arange(ports.start.size - 1, dtype=np.int32), np.diff(ports.start))


def ports_at(ports: Ports, machines: Longs | Ints) -> tuple[Ints, Longs]:
    """The ports of these machines: each one's place in `machines`, and its row among the ports."""
    start = ports.start[machines]
    count = ports.start[machines + 1] - start
    owner = np.repeat(np.arange(machines.size, dtype=np.int32), count)
    return owner, (start - (np.cumsum(count) - count))[owner] + np.arange(owner.size)


def on_compute_fabric(ports: Ports, fabrics: Fabrics) -> Bools:
    """(ports,): on a known fabric that is not marked as storage."""
    # The extra last entry is read by the index of ports on no known fabric.
    counts = np.append(~fabrics.storage, np.False_)
    return np.asarray(counts[ports.fabric], dtype=np.bool_)


def members_of(ports: Ports, fabrics: Fabrics) -> Members:
    """One membership for each machine and compute fabric with a port, and the speed of its fastest port that is up."""
    rows = np.flatnonzero(on_compute_fabric(ports, fabrics))
    machine, fabric = owners(ports)[rows], ports.fabric[rows]
    speed = np.where(ports.up[rows], ports.gbps[rows], NO_PORT).astype(np.int32)
    order = np.lexsort((machine, fabric))
    machine, fabric, speed = machine[order], fabric[order], speed[order]
    first = starts(fabric, machine)
    best = np.maximum.reduceat(speed, first) if first.size else speed
    return Members(read_only(machine[first]), read_only(fabric[first]), read_only(best))


def port_sums_of(ports: Ports, fabrics: Fabrics) -> PortSums:
    """The per-machine numbers of the port rules."""
    machines = ports.start.size - 1
    owner, usable = owners(ports), on_compute_fabric(ports, fabrics)

    def count(rows: Bools) -> Ints:
        flat = np.bincount(ports.link[rows] * machines + owner[rows], minlength=2 * machines)
        return read_only(flat.astype(np.int32).reshape(2, machines))

    def fastest(rows: Bools) -> Ints:
        best = np.full((2, machines), NO_PORT, dtype=np.int32)
        np.maximum.at(best, (ports.link[rows], owner[rows]), ports.gbps[rows])
        return read_only(best)

    return PortSums(
        present=count(np.ones(owner.size, dtype=np.bool_)),
        usable=count(usable),
        best_up=fastest(usable & ports.up),
        best_down=fastest(usable & ~ports.up),
    )
