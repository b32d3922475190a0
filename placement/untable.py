"""From a snapshot back to the columns that it was built from."""

from typing import Any

import numpy as np

from placement.arrays import UNKNOWN, Ints, Longs, Words
from placement.snapshot import Snapshot
from placement.tables import Coded, Gpus, Owned, PortRows, Tables, coded
from placement.topology import Topology, ports_at


def tables_of(snapshot: Snapshot, rows: Longs) -> Tables:
    """The facts about the machines in these rows."""
    topology = snapshot.topology
    return Tables(
        names=tuple(topology.names[row] for row in rows.tolist()),
        ids=topology.ids[rows],
        pool=Coded(topology.pools, topology.pool[rows]),
        rack=Coded(topology.racks, topology.rack[rows]),
        nvlink_domain=Coded(topology.nvlink_domains, topology.nvlink_domain[rows]),
        state=snapshot.state[rows],
        cpu_total=topology.cpu_total[rows],
        cpu_free=snapshot.cpu_free[rows],
        memory_total=topology.memory_total[rows],
        memory_free=snapshot.memory_free[rows],
        gpus=_gpus(snapshot, rows),
        ports=_ports(topology, rows),
        labels=_owned(topology.label_pairs, topology.labels[rows]),
        drives=_owned(topology.drive_names, topology.drives[rows]),
    )


def _gpus(snapshot: Snapshot, rows: Longs) -> Gpus:
    topology = snapshot.topology
    owner, slot = np.nonzero(topology.gpu_index[rows] != UNKNOWN)
    at = (rows[owner], slot)
    return Gpus(
        owner=owner.astype(np.int32),
        index=topology.gpu_index[at],
        id=topology.gpu_id[at],
        model=Coded(topology.models, topology.gpu_model[at]),
        memory=topology.gpu_memory[at],
        island=topology.gpu_island[at],
        state=snapshot.gpu_state[at],
    )


def _ports(topology: Topology, rows: Longs) -> PortRows:
    ports, fabrics = topology.ports, topology.fabrics
    owner, at = ports_at(ports, rows)
    return PortRows(
        owner=owner,
        name=coded(ports.names[row] for row in at.tolist()),
        link=ports.link[at],
        up=ports.up[at],
        gbps=ports.gbps[at],
        fabric=Coded(fabrics.names, ports.fabric[at]),
    )


def _owned(table: tuple[Any, ...], words: Words) -> Owned[Any]:
    owner, bit = bits_set(words)
    return Owned(owner, Coded(table, bit))


def bits_set(words: Words) -> tuple[Ints, Ints]:
    """Row and number of each bit that is set; bit b of word w is number 64 w + b."""
    row, word = np.nonzero(words)
    found, bit = np.nonzero((words[row, word][:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1))
    return row[found].astype(np.int32), (word[found] * 64 + bit).astype(np.int32)
