"""Machines as the API shows them: metadata, spec, status."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from console.pages.machine_facts import gpus_present, places_of
from console.pages.words import gpus_free
from machines.models import Gpu, Machine, MachineLabel, RdmaPort
from machines.states import MachineState
from runs.models import Allocation
from tenancy.access import Actor, workspaces_of

JSON = dict[str, Any]
Holders = dict[int, tuple[str, str, int]]
"""GPU id → run, worker, workspace id."""


def machines_present(machines: Iterable[Machine], actor: Actor) -> list[JSON]:
    """`machines` as loaded by `machines_for_display`; who holds what is told where `actor` may read it."""
    loaded = list(machines)
    visible = {workspace.id for workspace in workspaces_of(actor)}
    holders = _holders(loaded)
    return [_machine(machine, holders, visible) for machine in loaded]


def _holders(machines: list[Machine]) -> Holders:
    held = Allocation.objects.filter(machine__in=machines, released_at=None, gpu__isnull=False)
    rows = held.values_list(
        "gpu_id",
        "assignment__attempt__run__name",
        "assignment__worker__name",
        "assignment__attempt__run__workspace_id",
    )
    return {gpu: (run, worker, workspace) for gpu, run, worker, workspace in rows if gpu is not None}


def _machine(machine: Machine, holders: Holders, visible: set[int]) -> JSON:
    return {
        "metadata": {"name": machine.name, "labels": _labels(machine.labels.all())},
        "spec": {"pool": machine.pool.slug},
        "status": _status(machine, holders, visible),
    }


def _labels(labels: Iterable[MachineLabel]) -> dict[str, str]:
    """What a person set wins over what was found."""
    ordered = sorted(labels, key=lambda label: not label.found)
    return {label.key: label.value for label in ordered}


def _status(machine: Machine, holders: Holders, visible: set[int]) -> JSON:
    gpus = gpus_present(machine)
    places = places_of(machine)
    return {
        "state": machine.state.label,
        "reason": machine_reason(machine),
        "cordoned": machine.cordoned_at is not None,
        "drain_until": machine.drain_until,
        "gpus_total": len(gpus),
        "gpus_free": gpus_free(gpus, holders),
        "gpu_model": ", ".join(Counter(gpu.model for gpu in gpus)),
        "cpu_cores": machine.cpu_cores,
        "memory_bytes": machine.memory_bytes,
        "fabric": places["fabric"].value or None,
        "rack": places["rack"].value or None,
        "nvlink_domain": places["nvlink-domain"].value or None,
        "address": machine.address,
        "agent_version": machine.agent_version,
        "runtime": machine.runtime,
        "last_seen_at": machine.last_seen_at,
        "simulated": machine.simulated,
        "limits": machine.limits,
        "gpus": [_gpu(gpu, holders, visible) for gpu in gpus],
        "rdma_ports": [_port(port) for port in machine.rdma_ports.all()],
    }


def machine_reason(machine: Machine) -> str:
    """The one sentence beside the machine's state; empty for one that takes work."""
    said = f": “{machine.cordon_reason}”" if machine.cordon_reason else ""
    match machine.state:
        case MachineState.CORDONED:
            return f"Cordoned by {machine.cordoned_by}{said}"
        case MachineState.DRAINING:
            until = (
                f"; what runs here has until {machine.drain_until:%Y-%m-%d %H:%M} UTC"
                if machine.drain_until
                else ""
            )
            return f"Drained by {machine.cordoned_by}{said}{until}"
        case MachineState.UNREACHABLE if machine.last_seen_at is None:
            return "Its agent has not been heard yet"
        case MachineState.UNREACHABLE:
            return f"Not heard from; noticed at {machine.unreachable_at:%Y-%m-%d %H:%M} UTC"
        case MachineState.QUARANTINED:
            return "Its agent knows of orders that the console does not: quarantined until an owner decides"
        case _:
            return ""


def _gpu(gpu: Gpu, holders: Holders, visible: set[int]) -> JSON:
    run, worker, workspace = holders.get(gpu.id, (None, None, None))
    told = workspace in visible
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "product": gpu.product,
        "model": gpu.model,
        "memory_bytes": gpu.memory_bytes,
        "health": gpu.health,
        "evidence": gpu.evidence,
        "held": gpu.id in holders,
        "run": run if told else None,
        "worker": worker if told else None,
    }


def _port(port: RdmaPort) -> JSON:
    return {
        "device": port.device,
        "port": port.port,
        "link_layer": port.link_layer,
        "state": port.state,
        "rate_gbps": port.rate_gbps,
        "fabric": port.fabric.name if port.fabric else None,
        "netdev": port.netdev,
    }
