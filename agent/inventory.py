"""What this machine has. GPUs and RDMA ports come from a `Devices`; without one there are none."""

import platform
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import psutil

from agent.simulate import SimulatedFile
from wire.agent_messages import Inventory

InventorySource = Callable[[], Inventory]


def real_inventory(runtime_version: str, limits: tuple[str, ...]) -> Inventory:
    return Inventory(
        cpu_cores=psutil.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release(),
        runtime_version=runtime_version,
        limits=limits,
    )


def simulated_inventory(real: Inventory, file: SimulatedFile) -> Inventory:
    """`real` with everything in its place that the file declares."""
    declared = file.read()
    return real.model_copy(
        update={
            "cpu_cores": declared.machine.cpu_cores or real.cpu_cores,
            "memory_bytes": declared.machine.memory_bytes or real.memory_bytes,
            "gpus": declared.gpus,
            "rdma_ports": declared.rdma_ports,
            "labels": declared.labels,
        }
    )


def inventory_source(
    runtime_version: str, limits: tuple[str, ...], simulated: SimulatedFile | None
) -> InventorySource:
    """Cheap to call: what can't change is read once."""
    real = real_inventory(runtime_version, limits)
    if simulated is None:
        return lambda: real
    return lambda: simulated_inventory(real, simulated)


def route_address(server: str) -> str:
    """This machine's address on its route to the console; nothing is sent to find out."""
    parts = urlsplit(server)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, target = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except (OSError, IndexError):
        return "127.0.0.1"
