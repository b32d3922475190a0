"""Takes over what an agent found on its machine: GPUs, ports and their fabrics, labels of simulated machines."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from common.clock import database_now
from machines.fabrics import KnownFabrics, fabrics_settle, reported_key
from machines.health_events import health_events_store
from machines.mesh import mesh_store
from machines.models import Gpu, Machine, MachineLabel, RdmaPort
from machines.overrides import Judged, Overrides
from machines.signals import cluster_changed
from machines.states import Health
from wire.agent_messages import Observed
from wire.gpu_models import short_model
from wire.inventory import GpuReport, Inventory, PortReport


@transaction.atomic
def inventory_store(*, machine: Machine, observed: Observed, skew: timedelta = timedelta(0)) -> bool:
    """Stores what differs; True when anything did (then placement is told and the machine's version rises).

    `skew` is added to the agent's times.
    """
    inventory, overrides = observed.inventory, Overrides.of(machine)
    _page_store(machine, inventory, skew, overrides)
    health_events_store(machine, inventory.health_events, skew)
    mesh_store(machine, observed.mesh)
    changed = any(
        (
            _machine_store(machine, observed),
            _gpus_store(machine, inventory.gpus, overrides),
            _ports_store(machine, inventory.rdma_ports, overrides),
            _labels_store(machine, inventory),
        )
    )
    if changed:
        Machine.objects.filter(id=machine.id).update(version=F("version") + 1)
        cluster_changed.send(sender=Machine, cluster_id=machine.cluster_id)
    return changed


def _update(row: Any, **values: Any) -> bool:
    """Writes the fields whose values differ; True when there were any."""
    changed = [name for name, value in values.items() if getattr(row, name) != value]
    for name in changed:
        setattr(row, name, values[name])
    if changed:
        row.save(update_fields=changed)
    return bool(changed)


def _machine_store(machine: Machine, observed: Observed) -> bool:
    inventory = observed.inventory
    return _update(
        machine,
        cpu_cores=inventory.cpu_cores,
        memory_bytes=inventory.memory_bytes,
        kernel=inventory.kernel[:120],
        limits=list(inventory.limits),
        busy_ports=list(observed.busy_ports),
    )


def _page_store(machine: Machine, inventory: Inventory, skew: timedelta, overrides: Overrides) -> None:
    """What only people see: no reason to place anything anew."""
    reported = Judged(inventory.health, inventory.evidence)
    known = inventory.gpus_as_of
    _update(
        machine,
        hardware=inventory.model_dump(mode="json", include={"host", "split_gpus"}),
        gpus_as_of=None if known is None else datetime.fromtimestamp(known, UTC) + skew,
        **_health(overrides.machine(reported), reported),
        checks=[check.model_dump(mode="json") for check in inventory.checks],
    )


def _health(counts: Judged, reported: Judged) -> dict[str, str]:
    """The fields of a row with health."""
    return {
        "health": counts.health,
        "evidence": counts.evidence,
        "reported_health": reported.health,
        "reported_evidence": reported.evidence,
    }


def _gpus_store(machine: Machine, reports: tuple[GpuReport, ...], overrides: Overrides) -> bool:
    known = {gpu.uuid: gpu for gpu in machine.gpus.all()}
    changed = False
    for report in {report.uuid: report for report in reports}.values():  # a driver may list one twice
        gpu = known.pop(report.uuid, None)
        changed |= _gpu_store(machine, gpu, report, overrides)
    gone = [gpu.id for gpu in known.values() if gpu.present]
    # Rows stay: something may hold the GPU, and its history names it.
    return bool(Gpu.objects.filter(id__in=gone).update(present=False)) or changed


def _gpu_store(machine: Machine, gpu: Gpu | None, report: GpuReport, overrides: Overrides) -> bool:
    reported = Judged(report.health, report.evidence[:300])
    values = {
        "index": report.index,
        "product": report.product,
        "model": short_model(report.product),
        "memory_bytes": report.memory_bytes,
        "numa_node": report.numa_node,
        "nvlink_domain": report.nvlink_domain or "",
        **_health(overrides.gpu(report.uuid, reported), reported),
        "pci_bus": report.pci_bus,
        "present": True,
    }
    if gpu is not None:
        return _update(gpu, **values)
    Gpu.objects.create(machine=machine, uuid=report.uuid, **values)
    return True


def _ports_store(machine: Machine, reports: tuple[PortReport, ...], overrides: Overrides) -> bool:
    known = {(port.device, port.port): port for port in machine.rdma_ports.all()}
    fabrics = KnownFabrics(machine.cluster_id, database_now())
    changed = False
    for report in {(report.device, report.port): report for report in reports}.values():
        port = known.pop((report.device, report.port), None)
        fabric_id = fabrics.of(port, report)
        reported = Judged(report.health, report.evidence)
        judged = overrides.port(report.device, report.port, reported)
        seen = {
            "link_layer": report.link_layer,
            "state": report.state,
            "rate_gbps": report.rate_gbps,
            "fabric_id": fabric_id,
            "netdev": report.netdev or "",
        }
        if port is not None:
            changed |= (port.health == Health.FAULTY) != (judged.health == Health.FAULTY)
            _update(port, **_port_details(port, report), **_health(judged, reported))
            changed |= _update(port, **seen)
        else:
            new = RdmaPort(machine=machine, device=report.device, port=report.port, **seen)
            details = {**_port_details(new, report), **_health(judged, reported)}
            for name, value in details.items():
                setattr(new, name, value)
            new.save()
            changed = True
    if known:
        RdmaPort.objects.filter(id__in=[port.id for port in known.values()]).delete()
    if any(reported_key(report) for report in reports):
        cluster_id = machine.cluster_id
        transaction.on_commit(lambda: fabrics_settle(cluster_id))
    return changed or bool(known)


def _port_details(port: RdmaPort, report: PortReport) -> dict[str, Any]:
    """What placement doesn't look at."""
    key = reported_key(report)
    same = (port.reported_key, port.reported_guess) == (key, report.guessed)
    return {
        "physical_state": report.physical_state,
        "guid": report.guid,
        "lid": report.lid,
        "sm_lid": report.sm_lid,
        "gids": list(report.gids),
        "numa_node": report.numa_node,
        "subnet_prefix": report.subnet_prefix or port.subnet_prefix,
        "reported_key": key,
        "reported_guess": report.guessed,
        "reported_at": port.reported_at if same else database_now(),
    }


def _labels_store(machine: Machine, inventory: Inventory) -> bool:
    found = {label.key: label for label in machine.labels.filter(found=True)}
    changed = False
    for key, value in inventory.labels.items():
        label = found.pop(key, None)
        if label is None:
            MachineLabel.objects.create(machine=machine, key=key, value=value, found=True)
            changed = True
        else:
            changed |= _update(label, value=value)
    if found:
        MachineLabel.objects.filter(id__in=[label.id for label in found.values()]).delete()
    return changed or bool(found)
