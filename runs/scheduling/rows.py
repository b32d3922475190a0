"""What placement needs of a cluster's rows, as columns: a fixed number of queries, and no instance for each row.

Plain SQL, because a cluster of 10,000 machines has 80,000 GPUs and as many ports: models would cost seconds.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import compress, islice
from typing import Any, cast

import numpy as np
import psycopg
from django.db import connection

from machines.states import FABRIC_LABEL, NVLINK_DOMAIN_LABEL, RACK_LABEL, Health, LinkLayer, MachineState
from placement import MachineState as Bits
from placement.arrays import Bytes, Ints, Longs
from placement.snapshot import GPU_FAULTY, GPU_HELD, GPU_PRESENT, GPU_SUSPECT
from placement.tables import NUMA_ISLANDS, Coded, Gpus, Owned, PortRows, Tables, Usage, coded, ints, longs
from placement.topology import INFINIBAND, ROCE
from wire.quantities import MILLI

BITS = {
    MachineState.READY: Bits.READY,
    MachineState.CORDONED: Bits.READY | Bits.CORDONED,
    MachineState.DRAINING: Bits.READY | Bits.DRAINING,
    MachineState.UNREACHABLE: Bits.UNREACHABLE,
    MachineState.QUARANTINED: Bits.QUARANTINED,
    MachineState.CONTESTED: Bits.READY | Bits.CONTESTED,
}

# {of} narrows machine ids to those of the cluster, or to some of them; {read} likewise to these and others of which
# only the usage is read. Each of them gives one row with a list for each column: 80,000 rows of their own would take
# longer to unpack than to read.
_OF_CLUSTER = "IN (SELECT id FROM machines_machine WHERE cluster_id = %(cluster)s AND removed_at IS NULL)"
_OF_SOME = "= ANY(%(machines)s::bigint[])"
_READ_SOME = "= ANY(%(machines)s::bigint[] || %(used)s::bigint[])"

_MACHINES = f"""
SELECT array_agg(m.id), array_agg(m.version), array_agg(m.name), array_agg(p.slug), array_agg(m.cpu_cores),
  array_agg(m.memory_bytes), array_agg(CASE
    WHEN m.quarantined_at IS NOT NULL THEN '{MachineState.QUARANTINED}'
    WHEN m.unreachable_at IS NOT NULL OR m.last_seen_at IS NULL THEN '{MachineState.UNREACHABLE}'
    WHEN m.two_agents_at IS NOT NULL THEN '{MachineState.CONTESTED}'
    WHEN m.draining_at IS NOT NULL THEN '{MachineState.DRAINING}'
    WHEN m.cordoned_at IS NOT NULL THEN '{MachineState.CORDONED}'
    ELSE '{MachineState.READY}'
  END)
FROM machines_machine m JOIN machines_pool p ON p.id = m.pool_id
WHERE m.cluster_id = %(cluster)s AND m.removed_at IS NULL AND m.id {{read}}
"""  # noqa: S608 - constants of ours
_TAKEN = """
SELECT array_agg(machine_id), array_agg(gpu_id), array_agg(cpu_cores), array_agg(memory_bytes)
FROM runs_allocation WHERE released_at IS NULL AND machine_id {read}
"""
_GPUS = f"""
SELECT array_agg(machine_id), array_agg(id), array_agg(index), array_agg(model), array_agg(memory_bytes),
  array_agg(coalesce(numa_node, -1)), array_agg(nvlink_domain), array_agg(
    CASE health WHEN '{Health.SUSPECT}' THEN {GPU_SUSPECT} WHEN '{Health.FAULTY}' THEN {GPU_FAULTY} ELSE 0 END
  )
FROM machines_gpu WHERE present AND machine_id {{of}}
"""  # noqa: S608 - constants of ours
_PORTS = f"""
SELECT array_agg(r.machine_id), array_agg(r.device || ':' || r.port),
  array_agg(CASE r.link_layer WHEN '{LinkLayer.INFINIBAND}' THEN {INFINIBAND} ELSE {ROCE} END),
  array_agg(r.state = 'ACTIVE' AND r.health <> '{Health.FAULTY}'),
  array_agg(trunc(greatest(least(r.rate_gbps, 1000000), 0))::int), array_agg(f.name)
FROM machines_rdmaport r LEFT JOIN machines_fabric f ON f.id = r.fabric_id
WHERE r.machine_id {{of}}
"""  # noqa: S608 - constants of ours
_LABELS = """
SELECT array_agg(machine_id), array_agg(key), array_agg(value), array_agg(found)
FROM machines_machinelabel WHERE machine_id {of}
"""
# Few rows, whatever they are narrowed to: a shared drive is one, however many machines have it.
_DRIVES = """
SELECT array_agg(CASE WHEN d.reach = 'local' THEN d.machine_id END), array_agg(d.name), array_agg(p.slug)
FROM machines_datavolume d LEFT JOIN machines_pool p ON p.id = d.pool_id WHERE d.cluster_id = %(cluster)s
"""
_STORAGE = "SELECT array_agg(name) FROM machines_fabric WHERE cluster_id = %(cluster)s AND storage"
_QUERIES = (_MACHINES, _TAKEN, _GPUS, _PORTS, _LABELS, _DRIVES, _STORAGE)

# All of them as one statement, which gives a single row: it sees one moment, and its plan can be kept.
_TOGETHER = f"SELECT * FROM {', '.join(f'({query}) q{number}' for number, query in enumerate(_QUERIES))}"  # noqa: S608
_WIDTHS = tuple(query.count("array_agg(") for query in _QUERIES)
_WHOLE = _TOGETHER.format(of=_OF_CLUSTER, read=_OF_CLUSTER)
_SOME = _TOGETHER.format(of=_OF_SOME, read=_READ_SOME)

# Workers of a parallel query would hand over their lists entry by entry, which takes longer than making them.
_ALONE = "SET LOCAL max_parallel_workers_per_gather = 0"

_Columns = list[list[Any]]


@dataclass(frozen=True, slots=True)
class Rows:
    """Machines as they are now."""

    tables: Tables
    versions: dict[int, int]
    """Machine id → version, in the order of `tables`."""
    usage: Usage
    """Of machines of which nothing else was asked."""
    used_versions: dict[int, int]
    """Their versions, in the order of `usage`."""
    storage: frozenset[str]
    """Names of all the cluster's fabrics that are kept for storage."""

    @property
    def names(self) -> dict[int, str]:
        """Machine id → name."""
        return dict(zip(self.versions, self.tables.names, strict=True))


def rows_load(
    cluster_id: int, machine_ids: Collection[int] | None = None, *, used: Collection[int] = ()
) -> Rows:
    """The cluster's machines, or those of `machine_ids` that it has, and the usage of those `used`. One round trip."""
    machines, taken, gpus, ports, labels, drives, (storage,) = _read(cluster_id, machine_ids, used)
    used_machines, machines = _parted(machines, frozenset(used))
    ids, versions, names, pools, cores, memory, states = machines
    places = _Places(ids)
    effective = _labels_effective(*places.those(labels))
    cpu_taken, memory_taken, held = _taken(places, places.those(taken))
    gpus = places.those(gpus)
    domains = _nvlink_domains(gpus)
    tables = Tables(
        names=tuple(names),
        ids=longs(ids),
        pool=coded(pools),
        rack=coded(effective.get((each, RACK_LABEL)) for each in ids),
        nvlink_domain=coded(effective.get((each, NVLINK_DOMAIN_LABEL)) or domains.get(each) for each in ids),
        state=_states(states),
        cpu_total=longs(cores) * MILLI,
        cpu_free=longs(cores) * MILLI - cpu_taken,
        memory_total=longs(memory),
        memory_free=longs(memory) - memory_taken,
        gpus=_gpus(places, gpus, held),
        ports=_ports(places, places.those(ports), effective),
        labels=Owned(
            places.of([machine for machine, _ in effective]),
            coded((key, value) for (_, key), value in effective.items()),
        ),
        drives=_drives(places, drives, pools),
    )
    return Rows(
        tables,
        dict(zip(ids, versions, strict=True)),
        _usage(used_machines, taken),
        dict(zip(used_machines[0], used_machines[1], strict=True)),
        frozenset(storage),
    )


def _read(cluster_id: int, machine_ids: Collection[int] | None, used: Collection[int]) -> list[_Columns]:
    """The columns of each query."""
    if machine_ids is None:
        row = _whole_read({"cluster": cluster_id})
    else:
        row = _some_read({"cluster": cluster_id, "machines": _array(machine_ids), "used": _array(used)})
    columns = iter(row)
    return [[column or [] for column in islice(columns, width)] for width in _WIDTHS]


def _whole_read(values: Mapping[str, Any]) -> Sequence[Any]:
    with connection.cursor() as cursor:
        cursor.execute(f"{_ALONE};{_WHOLE}", values)
        cursor.nextset()  # the answer to SET
        return cast("Sequence[Any]", cursor.fetchone())


def _some_read(values: Mapping[str, Any]) -> Sequence[Any]:
    """Planned once for each connection: for few machines planning takes as long as reading.

    Django's own cursors never keep a plan, so this one is psycopg's.
    """
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        return cast("Sequence[Any]", cursor.execute(_SOME, values, prepare=True, binary=True).fetchone())


def _array(ids: Collection[int]) -> str:
    """As one word, whatever the size of the numbers: psycopg tells lists of small and of large ones apart."""
    return f"{{{','.join(map(str, ids))}}}"


def _parted(columns: _Columns, some: AbstractSet[int]) -> tuple[_Columns, _Columns]:
    """The rows of `some` machines, and the others."""
    inside = [machine in some for machine in columns[0]]
    outside = [not each for each in inside]
    return [list(compress(column, inside)) for column in columns], [
        list(compress(column, outside)) for column in columns
    ]


def _states(states: Sequence[str]) -> Bytes:
    return np.array([BITS[MachineState(state)] for state in states], dtype=np.uint8)


def _usage(machines: _Columns, taken: _Columns) -> Usage:
    ids, _, names, _, _, _, states = machines
    places = _Places(ids)
    return Usage(tuple(names), _states(states), *_taken(places, places.those(taken)))


class _Places:
    """Where in the tables the machines with these ids are."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.place = {machine: place for place, machine in enumerate(ids)}

    def of(self, machine_ids: Sequence[int]) -> Ints:
        places = map(self.place.__getitem__, machine_ids)
        return np.fromiter(places, dtype=np.int32, count=len(machine_ids))

    def those(self, columns: _Columns) -> _Columns:
        """Less the rows of machines that are not here: they came or went while this was read."""
        if all(map(self.place.__contains__, columns[0])):
            return columns
        there = [machine in self.place for machine in columns[0]]
        return [list(compress(column, there)) for column in columns]


def _labels_effective(
    machines: Sequence[int], keys: Sequence[str], values: Sequence[str], found: Sequence[bool]
) -> dict[tuple[int, str], str]:
    """(Machine id, key) → value. What a person set wins over what was found."""
    pairs = list(zip(machines, keys, strict=True))
    said = [not itself for itself in found]
    effective = dict(zip(compress(pairs, found), compress(values, found), strict=True))
    return effective | dict(zip(compress(pairs, said), compress(values, said), strict=True))


def _taken(places: _Places, taken: _Columns) -> tuple[Longs, Longs, Longs]:
    """Millicores and bytes of memory for each machine; ids of the GPUs that are held."""
    machines, gpus, cores, memory = taken
    size, owner = len(places.place), places.of(machines)
    bytes_ = np.zeros(size, dtype=np.int64)
    np.add.at(bytes_, owner, longs(memory))
    millicores = np.rint(np.bincount(owner, weights=np.array(cores) * MILLI, minlength=size))
    return millicores.astype(np.int64), bytes_, longs([gpu for gpu in gpus if gpu is not None])


def _gpus(places: _Places, gpus: _Columns, held: Longs) -> Gpus:
    machines, ids, index, models, memory, numa, _, health = gpus
    state = np.array(health, dtype=np.uint8) | np.uint8(GPU_PRESENT)
    state[np.isin(longs(ids), held, assume_unique=True)] |= GPU_HELD
    return Gpus(
        owner=places.of(machines),
        index=ints(index),
        id=longs(ids),
        model=coded(models),
        memory=longs(memory),
        island=NUMA_ISLANDS + ints(numa),
        state=state,
    )


def _drives(places: _Places, drives: _Columns, pools: Sequence[str]) -> Owned[str]:
    """A drive is on its machine, or on all machines of its pool, or on all: one that others reach, too."""
    pool_of = np.array(pools, dtype=object)
    owners, items = [ints([])], [ints([])]
    for number, (machine, _, pool) in enumerate(zip(*drives, strict=True)):
        if machine is not None:
            rows = ints([places.place[machine]] if machine in places.place else [])
        else:
            rows = np.flatnonzero(pool_of == pool).astype(np.int32) if pool else _all(places)
        owners.append(rows)
        items.append(np.full(len(rows), number, dtype=np.int32))
    return Owned(np.concatenate(owners), Coded(tuple(drives[1]), np.concatenate(items)))


def _all(places: _Places) -> Ints:
    return np.arange(len(places.place), dtype=np.int32)


def _nvlink_domains(gpus: _Columns) -> dict[int, str]:
    """Of each machine whose GPUs name one NVLink domain, and not several."""
    named = {pair for pair in zip(gpus[0], gpus[6], strict=True) if pair[1]}
    count = Counter(machine for machine, _ in named)
    return {machine: domain for machine, domain in named if count[machine] == 1}


def _ports(places: _Places, ports: _Columns, labels: Mapping[tuple[int, str], str]) -> PortRows:
    """A machine's label for fabrics names its InfiniBand ports, whatever was found."""
    machines, names, links, up, gbps, fabrics = ports
    said = {machine: value for (machine, key), value in labels.items() if key == FABRIC_LABEL and value}
    if said:
        fabrics = [
            said.get(machine, found) if link == INFINIBAND else found
            for machine, link, found in zip(machines, links, fabrics, strict=True)
        ]
    return PortRows(
        owner=places.of(machines),
        name=coded(names),
        link=ints(links),
        up=np.array(up, dtype=np.bool_),
        gbps=ints(gbps),
        fabric=coded(fabrics),
    )
