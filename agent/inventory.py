"""What this machine has, as the console is told: discovered, or declared in a file."""

import platform
import socket
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

import psutil

from agent.discovery.machine import Discovery, Found
from agent.simulate import SimulatedFile
from wire.assignments import FEATURES
from wire.inventory import Inventory

InventorySource = Callable[[], Inventory]


def real_inventory(runtime_version: str, limits: tuple[str, ...]) -> Inventory:
    return Inventory(
        cpu_cores=psutil.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release(),
        runtime_version=runtime_version,
        limits=limits,
        features=tuple(sorted(FEATURES)),
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


def discovered_inventory(base: Inventory, found: Found) -> Inventory:
    """`base` with everything that was discovered."""
    return base.model_copy(
        update={
            "gpus": found.gpus,
            "split_gpus": found.split_gpus,
            "gpus_as_of": found.gpus_as_of,
            "rdma_ports": found.ports,
            "host": found.host,
            "limits": (*base.limits, *found.limits),
            "health": found.verdict.health,
            "evidence": found.verdict.evidence,
            "health_events": found.events,
            "checks": found.checks,
        }
    )


def offered_inventory(whole: Inventory, gpus: Collection[str]) -> Inventory:
    """`whole` with no GPUs but those named, by UUID, and a word about it; none named: as it is."""
    if not gpus:
        return whole
    offered = tuple(gpu for gpu in whole.gpus if gpu.uuid in gpus)
    missing = sorted(set(gpus) - {gpu.uuid for gpu in offered})
    words = f"This agent offers {len(offered)} of the machine's {len(whole.gpus)} GPUs and leaves the others alone."
    lacks = (f"Named with --gpu, but not on this machine as a whole GPU: {', '.join(missing)}."[:500],)
    limits = (*whole.limits, words, *(lacks if missing else ()))
    return whole.model_copy(update={"gpus": offered, "split_gpus": (), "limits": limits})


class DiscoveredInventory:
    """Cheap to call: an inventory is put together once for each time that the machine was looked at."""

    def __init__(self, base: Inventory, discovery: Discovery, gpus: Collection[str] = ()) -> None:
        self._base = base
        self._discovery = discovery
        self._gpus = gpus
        self._found = Found()
        self._inventory = base

    def __call__(self) -> Inventory:
        found = self._discovery.found
        if found is not self._found:
            self._found = found
            self._inventory = offered_inventory(discovered_inventory(self._base, found), self._gpus)
        return self._inventory


def simulated_source(real: Inventory, simulated: SimulatedFile, gpus: Collection[str]) -> InventorySource:
    return lambda: offered_inventory(simulated_inventory(real, simulated), gpus)


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
