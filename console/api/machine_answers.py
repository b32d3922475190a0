"""Machines as the API shows them: metadata, spec, status."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from django.utils import timezone

from console.pages.machine_facts import gpus_present, places_of
from console.pages.words import gpus_free
from console.versions import agent_is_old
from machines.channel import RIVALS
from machines.mesh import mesh_subnet
from machines.models import Gpu, HealthOverride, Machine, MachineLabel, RdmaPort
from machines.states import MachineState
from runs.lemons import Counted, failures_counted, lemon_score
from runs.models import Allocation
from tenancy.access import Actor, workspaces_of

JSON = dict[str, Any]
Holders = dict[int, tuple[str, str, int]]
"""GPU id → run, worker, workspace id."""


def machines_present(machines: Iterable[Machine], actor: Actor) -> list[JSON]:
    """`machines` as loaded by `machines_for_display`; who holds what is told where `actor` may read it."""
    loaded = list(machines)
    visible = {workspace.id for workspace in workspaces_of(actor)}
    holders, failures = _holders(loaded), failures_counted(loaded, timezone.now())
    overrides: dict[int, list[HealthOverride]] = defaultdict(list)
    for said in HealthOverride.objects.filter(machine__in=loaded):
        overrides[said.machine_id].append(said)
    return [
        _machine(
            machine,
            {
                **_status(machine, holders, visible),
                **_health(machine, overrides[machine.id]),
                **_failures(failures.get(machine.id, []), visible),
            },
        )
        for machine in loaded
    ]


def _holders(machines: list[Machine]) -> Holders:
    held = Allocation.objects.filter(machine__in=machines, released_at=None, gpu__isnull=False)
    rows = held.values_list(
        "gpu_id",
        "assignment__attempt__run__name",
        "assignment__worker__name",
        "assignment__attempt__run__workspace_id",
    )
    return {gpu: (run, worker, workspace) for gpu, run, worker, workspace in rows if gpu is not None}


def _machine(machine: Machine, status: JSON) -> JSON:
    return {
        "metadata": {"name": machine.name, "labels": _labels(machine.labels.all())},
        "spec": {"pool": machine.pool and machine.pool.slug},
        "status": status,
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
        "agent_old": agent_is_old(machine.agent_version),
        "runtime": machine.runtime,
        "last_seen_at": machine.last_seen_at,
        "simulated": machine.simulated,
        "limits": machine.limits,
        "gpus": [_gpu(gpu, holders, visible) for gpu in gpus],
        "rdma_ports": [_port(port) for port in machine.rdma_ports.all()],
        "mesh": {
            "subnet": mesh_subnet(machine) or None,
            "public_key": machine.mesh_key or None,
            "endpoint": machine.mesh_endpoint or None,
            "flaw": machine.mesh_flaw,
        },
    }


def _health(machine: Machine, overrides: Iterable[HealthOverride]) -> JSON:
    names = ("subject", "health", "reason", "set_by", "set_at", "until")
    return {
        "health": machine.health,
        "evidence": machine.evidence,
        "health_overrides": [{name: getattr(said, name) for name in names} for said in overrides],
    }


def _failures(failures: list[Counted], visible: set[int]) -> JSON:
    return {
        "lemon_score": round(lemon_score(failures), 2),
        "failures": [_failure(each, told=each.failure.workspace_id in visible) for each in failures],
    }


def _failure(counted: Counted, *, told: bool) -> JSON:
    failure = counted.failure
    return {
        "run": failure.run_name if told else None,
        "kind": failure.kind,
        "text": failure.text if told else failure.get_kind_display(),
        "times": failure.times,
        "at": failure.at,
        "counts": round(counted.counts, 2),
    }


_REASONS = {
    MachineState.QUARANTINED: "Its agent knows of orders that the console does not: quarantined until an owner decides",
    MachineState.CONTESTED: RIVALS,
}


def machine_reason(machine: Machine) -> str:
    """What there is to say beside the machine's state; empty for one that takes work."""
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
        case _:
            return _REASONS.get(machine.state, "")


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
        "health": port.health,
        "evidence": port.evidence,
    }
