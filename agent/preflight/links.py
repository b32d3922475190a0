"""What a worker is to use of its machine, judged from what the agent knows of it: GPUs, ports, daemons. Pure."""

from collections.abc import Iterator

from wire.assignments import Assignment, Preflight
from wire.inventory import GpuReport, Inventory, PortReport

_ACTIVE = "ACTIVE"
_DAEMONS = {"fabric manager", "IMEX daemon"}
_FAILED = {"missing", "wrong"}


def links_flaws(assignment: Assignment, preflight: Preflight, inventory: Inventory) -> list[str]:
    """What is wrong, a clause each; empty when the worker may start."""
    return [
        *_gpu_flaws(assignment, inventory),
        *_daemon_flaws(assignment, inventory),
        *_port_flaws(preflight, inventory),
    ]


def links_text(assignment: Assignment, preflight: Preflight) -> str:
    """What was found well: "8 GPUs healthy, 8 RDMA ports up at 400 Gb/s"."""
    gpus, ports = len(assignment.gpu_uuids), preflight.rdma_ports
    rates = " and ".join(f"{rate:g}" for rate in sorted(set(ports.values())))
    parts = [f"{gpus} GPU{'' if gpus == 1 else 's'} healthy"] if gpus else []
    parts += [f"{len(ports)} RDMA port{'' if len(ports) == 1 else 's'} up at {rates} Gb/s"] if ports else []
    return ", ".join(parts) or "neither GPUs nor RDMA ports to look at"


def _gpu_flaws(assignment: Assignment, inventory: Inventory) -> Iterator[str]:
    if assignment.gpu_uuids and inventory.gpus_as_of is not None:
        yield "the GPUs' driver doesn't answer"
        return
    there = {gpu.uuid: gpu for gpu in inventory.gpus}
    for uuid in assignment.gpu_uuids:
        gpu = there.get(uuid)
        if gpu is None:
            yield f"GPU {uuid} is no longer there"
        elif flaw := _gpu_flaw(gpu, imex=assignment.imex):
            yield f"GPU {gpu.index} {flaw}"


def _gpu_flaw(gpu: GpuReport, *, imex: bool) -> str:
    if gpu.health == "faulty":
        return f"is faulty ({gpu.evidence})" if gpu.evidence else "is faulty"
    return "is in no NVLink domain any more" if imex and gpu.nvlink_domain is None else ""


def _daemon_flaws(assignment: Assignment, inventory: Inventory) -> Iterator[str]:
    """What NVLink between GPUs needs to run."""
    for check in inventory.checks if assignment.gpu_uuids else ():
        if check.what in _DAEMONS and check.verdict in _FAILED:
            yield f"{check.what}: {check.found}"


def _port_flaws(preflight: Preflight, inventory: Inventory) -> Iterator[str]:
    there = {f"{port.device}:{port.port}": port for port in inventory.rdma_ports}
    for name, gbps in preflight.rdma_ports.items():
        port = there.get(name)
        if port is None:
            yield f"RDMA port {name} is no longer there"
        elif flaw := _port_flaw(port, gbps):
            yield f"RDMA port {name} {flaw}"


def _port_flaw(port: PortReport, gbps: float) -> str:
    if port.state != _ACTIVE:
        return f"is {port.state}" + (f" ({port.physical_state})" if port.physical_state else "")
    if port.rate_gbps < gbps:
        return f"is up at {port.rate_gbps:g} Gb/s only, {gbps:g} Gb/s when the run was placed"
    return f"is faulty ({port.evidence})" if port.health == "faulty" else ""
