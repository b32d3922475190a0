"""Loads a cluster for the placement engine, in a fixed number of queries."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Sum

from machines.models import Cluster, Fabric, Gpu, Machine, MachineLabel, RdmaPort
from machines.states import (
    FABRIC_LABEL,
    NVLINK_DOMAIN_LABEL,
    RACK_LABEL,
    Health,
    LinkLayer,
    MachineState,
)
from placement import GpuFacts, MachineFacts, PortFacts, Snapshot, build_snapshot
from placement import MachineState as Bits
from runs.models import Allocation
from wire.quantities import MILLI

BITS = {
    MachineState.READY: Bits.READY,
    MachineState.CORDONED: Bits.READY | Bits.CORDONED,
    MachineState.DRAINING: Bits.READY | Bits.DRAINING,
    MachineState.UNREACHABLE: Bits.UNREACHABLE,
    MachineState.QUARANTINED: Bits.QUARANTINED,
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A snapshot, and what applying a placement needs to check that it still holds."""

    snapshot: Snapshot
    versions: dict[int, int]
    """Machine id → version as read."""
    names: dict[int, str]
    """Machine id → name."""


@dataclass(slots=True)
class _Rows:
    gpus: dict[int, list[Gpu]] = field(default_factory=lambda: defaultdict(list))
    ports: dict[int, list[RdmaPort]] = field(default_factory=lambda: defaultdict(list))
    labels: dict[int, list[MachineLabel]] = field(default_factory=lambda: defaultdict(list))
    held: frozenset[int] = frozenset()
    taken: dict[int, tuple[float, int]] = field(default_factory=dict)
    fabrics: dict[int, str] = field(default_factory=dict)
    storage: frozenset[str] = frozenset()


def cluster_load(cluster: Cluster) -> Loaded:
    """Reads the cluster as it is now. Versions are read first: what changes meanwhile makes the apply fail."""
    machines = list(Machine.objects.filter(cluster=cluster).select_related("pool"))
    rows = _rows_load(cluster)
    facts = [_machine(machine, rows) for machine in machines]
    return Loaded(
        snapshot=build_snapshot(facts, storage_fabrics=rows.storage),
        versions={machine.id: machine.version for machine in machines},
        names={machine.id: machine.name for machine in machines},
    )


def labels_effective(labels: Iterable[MachineLabel]) -> dict[str, str]:
    """What a person set wins over what was found."""
    ordered = sorted(labels, key=lambda label: not label.found)
    return {label.key: label.value for label in ordered}


def _rows_load(cluster: Cluster) -> _Rows:
    rows = _Rows()
    for gpu in Gpu.objects.filter(machine__cluster=cluster, present=True).order_by("index"):
        rows.gpus[gpu.machine_id].append(gpu)
    for port in RdmaPort.objects.filter(machine__cluster=cluster):
        rows.ports[port.machine_id].append(port)
    for label in MachineLabel.objects.filter(machine__cluster=cluster):
        rows.labels[label.machine_id].append(label)
    active = Allocation.objects.filter(machine__cluster=cluster, released_at=None)
    rows.held = frozenset(active.exclude(gpu=None).values_list("gpu_id", flat=True))
    sums = active.values_list("machine_id").annotate(Sum("cpu_cores"), Sum("memory_bytes"))
    rows.taken = {machine: (cpu, memory) for machine, cpu, memory in sums}
    fabrics = list(Fabric.objects.filter(cluster=cluster))
    rows.fabrics = {fabric.id: fabric.name for fabric in fabrics}
    rows.storage = frozenset(fabric.name for fabric in fabrics if fabric.storage)
    return rows


def _machine(machine: Machine, rows: _Rows) -> MachineFacts:
    labels = labels_effective(rows.labels[machine.id])
    cpu, memory = rows.taken.get(machine.id, (0.0, 0))
    gpus = rows.gpus[machine.id]
    domains = {gpu.nvlink_domain for gpu in gpus if gpu.nvlink_domain}
    return MachineFacts(
        name=machine.name,
        id=machine.id,
        pool=machine.pool.slug,
        state=BITS[machine.state],
        cpu_millicores=machine.cpu_cores * MILLI,
        cpu_free_millicores=round(machine.cpu_cores * MILLI - cpu * MILLI),
        memory_bytes=machine.memory_bytes,
        memory_free_bytes=machine.memory_bytes - memory,
        gpus=tuple(_gpu(gpu, rows.held) for gpu in gpus),
        ports=tuple(_port(port, labels, rows.fabrics) for port in rows.ports[machine.id]),
        rack=labels.get(RACK_LABEL) or None,
        nvlink_domain=labels.get(NVLINK_DOMAIN_LABEL) or (domains.pop() if len(domains) == 1 else None),
        labels=labels,
    )


def _gpu(gpu: Gpu, held: frozenset[int]) -> GpuFacts:
    return GpuFacts(
        index=gpu.index,
        id=gpu.id,
        model=gpu.model,
        memory_bytes=gpu.memory_bytes,
        numa=-1 if gpu.numa_node is None else gpu.numa_node,
        held=gpu.id in held,
        suspect=gpu.health == Health.SUSPECT,
        faulty=gpu.health == Health.FAULTY,
    )


def _port(port: RdmaPort, labels: dict[str, Any], fabrics: dict[int, str]) -> PortFacts:
    infiniband = port.link_layer == LinkLayer.INFINIBAND
    found = fabrics.get(port.fabric_id) if port.fabric_id else None
    return PortFacts(
        name=f"{port.device}:{port.port}",
        link="infiniband" if infiniband else "ethernet",
        up=port.up,
        gbps=int(port.rate_gbps),
        fabric=(labels.get(FABRIC_LABEL) or found) if infiniband else found,
    )
