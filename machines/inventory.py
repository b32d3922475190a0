"""Takes over what an agent found on its machine: GPUs, ports and their fabrics, labels of simulated machines."""

from typing import Any

from django.db import transaction
from django.db.models import F

from machines.models import Cluster, Fabric, Gpu, Machine, MachineLabel, RdmaPort
from machines.signals import cluster_changed
from wire.agent_messages import GpuReport, Inventory, Observed, PortReport
from wire.gpu_models import short_model


@transaction.atomic
def inventory_store(*, machine: Machine, observed: Observed) -> bool:
    """Stores what differs; True when anything did (then placement is told and the machine's version rises)."""
    inventory = observed.inventory
    changed = any(
        (
            _machine_store(machine, observed),
            _gpus_store(machine, inventory.gpus),
            _ports_store(machine, inventory.rdma_ports),
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


def _gpus_store(machine: Machine, reports: tuple[GpuReport, ...]) -> bool:
    known = {gpu.uuid: gpu for gpu in machine.gpus.all()}
    changed = False
    for report in {report.uuid: report for report in reports}.values():  # a driver may list one twice
        gpu = known.pop(report.uuid, None)
        changed |= _gpu_store(machine, gpu, report)
    gone = [gpu.id for gpu in known.values() if gpu.present]
    # Rows stay: something may hold the GPU, and its history names it.
    return bool(Gpu.objects.filter(id__in=gone).update(present=False)) or changed


def _gpu_store(machine: Machine, gpu: Gpu | None, report: GpuReport) -> bool:
    values = {
        "index": report.index,
        "product": report.product,
        "model": short_model(report.product),
        "memory_bytes": report.memory_bytes,
        "numa_node": report.numa_node,
        "nvlink_domain": report.nvlink_domain or "",
        "health": report.health,
        "evidence": report.evidence[:300],
        "present": True,
    }
    if gpu is not None:
        return _update(gpu, **values)
    Gpu.objects.create(machine=machine, uuid=report.uuid, **values)
    return True


def _ports_store(machine: Machine, reports: tuple[PortReport, ...]) -> bool:
    known = {(port.device, port.port): port for port in machine.rdma_ports.all()}
    fabrics = _fabric_ids(machine, reports)
    changed = False
    for report in {(report.device, report.port): report for report in reports}.values():
        values = {
            "link_layer": report.link_layer,
            "state": report.state,
            "rate_gbps": report.rate_gbps,
            "fabric_id": fabrics.get(_fabric_key(report)),
            "netdev": report.netdev or "",
        }
        port = known.pop((report.device, report.port), None)
        if port is not None:
            changed |= _update(port, **values)
        else:
            RdmaPort.objects.create(machine=machine, device=report.device, port=report.port, **values)
            changed = True
    if known:
        RdmaPort.objects.filter(id__in=[port.id for port in known.values()]).delete()
    return changed or bool(known)


def _fabric_key(report: PortReport) -> str:
    """The subnet manager of an InfiniBand port; empty while none is known, and for other ports."""
    return (report.subnet_manager or "") if report.link_layer == "InfiniBand" else ""


def _fabric_ids(machine: Machine, reports: tuple[PortReport, ...]) -> dict[str, int]:
    """Subnet manager → fabric, of all that the ports name; those that are new are made."""
    guessed = {key: report.guessed for report in reports if (key := _fabric_key(report))}
    known = Fabric.objects.filter(cluster=machine.cluster_id, key__in=guessed)
    found = dict(known.values_list("key", "id"))
    for key in sorted(guessed.keys() - found.keys()):
        found[key] = _fabric_make(machine.cluster_id, key, guessed=guessed[key])
    return found


def _fabric_make(cluster_id: int, key: str, *, guessed: bool) -> int:
    # Two machines that bring a new fabric each at the same moment must not give both one name.
    Cluster.objects.select_for_update().get(id=cluster_id)
    fabric, _ = Fabric.objects.get_or_create(
        cluster_id=cluster_id, key=key, defaults={"name": _fabric_name(cluster_id), "guessed": guessed}
    )
    return fabric.id


def _fabric_name(cluster_id: int) -> str:
    """The next free of ib-a, ib-b, …, ib-z, ib-27, …"""
    number = Fabric.objects.filter(cluster=cluster_id).count()
    letters = "abcdefghijklmnopqrstuvwxyz"
    return f"ib-{letters[number]}" if number < len(letters) else f"ib-{number + 1}"


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
