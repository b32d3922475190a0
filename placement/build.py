"""From facts about machines to a snapshot."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from placement.assemble import assemble
from placement.facts import GpuFacts, MachineFacts, PortFacts
from placement.snapshot import GPU_FAULTY, GPU_HELD, GPU_PRESENT, GPU_SUSPECT, Snapshot
from placement.tables import NUMA_ISLANDS, Gpus, Owned, PortRows, Tables, coded, ints, longs
from placement.topology import INFINIBAND, ROCE

LINKS = {"infiniband": INFINIBAND, "ethernet": ROCE}


def build_snapshot(machines: Iterable[MachineFacts], *, storage_fabrics: Collection[str] = ()) -> Snapshot:
    """The snapshot of these machines. Ports on `storage_fabrics` take no part in placement.

    Raises ValueError when two machines have one name: an allocation could then land on the wrong one.
    """
    return assemble(tables_of_facts(machines), storage_fabrics=storage_fabrics)


def tables_of_facts(machines: Iterable[MachineFacts]) -> Tables:
    """The facts as columns, in the order given."""
    facts = list(machines)
    labels = [(row, pair) for row, machine in enumerate(facts) for pair in machine.labels.items()]
    drives = [(row, drive) for row, machine in enumerate(facts) for drive in machine.drives]
    return Tables(
        names=tuple(machine.name for machine in facts),
        ids=longs([machine.id for machine in facts]),
        pool=coded(machine.pool for machine in facts),
        rack=coded(machine.rack for machine in facts),
        nvlink_domain=coded(machine.nvlink_domain for machine in facts),
        state=np.array([int(machine.state) for machine in facts], dtype=np.uint8),
        cpu_total=longs([machine.cpu_millicores for machine in facts]),
        cpu_free=longs([machine.cpu_free_millicores for machine in facts]),
        memory_total=longs([machine.memory_bytes for machine in facts]),
        memory_free=longs([machine.memory_free_bytes for machine in facts]),
        gpus=_gpus([(row, gpu) for row, machine in enumerate(facts) for gpu in machine.gpus]),
        ports=_ports([(row, port) for row, machine in enumerate(facts) for port in machine.ports]),
        labels=Owned(ints([row for row, _ in labels]), coded(pair for _, pair in labels)),
        drives=Owned(ints([row for row, _ in drives]), coded(drive for _, drive in drives)),
    )


def _gpus(rows: Sequence[tuple[int, GpuFacts]]) -> Gpus:
    return Gpus(
        owner=ints([row for row, _ in rows]),
        index=ints([gpu.index for _, gpu in rows]),
        id=longs([gpu.id for _, gpu in rows]),
        model=coded(gpu.model for _, gpu in rows),
        memory=longs([gpu.memory_bytes for _, gpu in rows]),
        island=ints([_island(gpu) for _, gpu in rows]),
        state=np.array([_bits(gpu) for _, gpu in rows], dtype=np.uint8),
    )


def _island(gpu: GpuFacts) -> int:
    """NUMA nodes count only where no NVLink island is known, and never collide with one."""
    return gpu.island if gpu.island >= 0 else NUMA_ISLANDS + gpu.numa


def _bits(gpu: GpuFacts) -> int:
    return GPU_PRESENT | gpu.held * GPU_HELD | gpu.suspect * GPU_SUSPECT | gpu.faulty * GPU_FAULTY


def _ports(rows: Sequence[tuple[int, PortFacts]]) -> PortRows:
    return PortRows(
        owner=ints([row for row, _ in rows]),
        name=coded(port.name for _, port in rows),
        link=ints([LINKS[port.link] for _, port in rows]),
        up=np.array([port.up for _, port in rows], dtype=np.bool_),
        gbps=ints([port.gbps for _, port in rows]),
        fabric=coded(port.fabric for _, port in rows),
    )
