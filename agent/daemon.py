"""The running agent: puts the parts together and keeps them until it is told to end."""

import fcntl
import logging
import os
import resource
import signal
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from agent.bubblewrap import Bubblewrap
from agent.channel import Channel, Heard, Identity
from agent.check import machine_checks
from agent.client import Console
from agent.config import Config, ConfigError
from agent.desired_state import DesiredState
from agent.discovery.machine import Discovery
from agent.events import Events
from agent.exports import Exports
from agent.inventory import (
    DiscoveredInventory,
    InventorySource,
    real_inventory,
    route_address,
    simulated_source,
)
from agent.journal import Journal
from agent.launching import Places
from agent.logs import LogShipper
from agent.mesh.mesh import Mesh, Settings
from agent.network_drives import NetworkDrives
from agent.ports import BusyPorts
from agent.preflight.checking import Surveyor
from agent.runtime import Runtime
from agent.silence import simulated_gpus_busy
from agent.simulate import SimulatedFile, SimulateError
from agent.workers import Workers
from wire.agent_messages import Observed
from wire.assignments import Desired

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_ADDRESS_SECONDS = 30.0
_DISCOVERY_SECONDS = 15.0
"""How long the console waits at most for a machine's GPUs to be known: without them it would think they were gone."""
_MOST_FILES = 1 << 20


class Agent:
    """`start` adopts what is there and returns; `close` leaves all workers running."""

    def __init__(self, config: Config) -> None:
        places = Places(config.state / "events", config.state / "heard", boot_id_read())
        address = address_source(config)
        self._busy_ports = BusyPorts(self._ports_held)
        self._mesh = mesh_of(config, address, self._changed)
        self._runtime = runtime = _runtime(config, places, address, self._busy_ports.note, self._mesh)
        self._console = Console(config.server, config.credential)
        self._state = DesiredState(config.state / "desired.json")
        self._discovery = _discovery(config, places.boot_id)
        self._inventory = _inventory(config, runtime, self._discovery)
        self._workers = Workers(
            Journal(config.state / "assignments"),
            runtime,
            gpus_busy=self._discovery.busy if self._discovery else simulated_gpus_busy,
            surveyor=Surveyor(config.name, config.simulate is not None, self._inventory),
            drives=NetworkDrives(config),
            exports=Exports(config),
            changed=self._changed,
        )
        self._looked = self._inventory(), self._busy_ports.read()
        self._shipper = LogShipper(self._console, self._workers)
        self._events = Events(places.events, self._workers.wake, self._shipper.wake)
        self._channel = Channel(
            console=self._console,
            identity=Identity(
                boot_id=places.boot_id,
                instance=uuid.uuid4().hex,
                runtime=config.runtime,
                simulated=config.simulate is not None,
                address=address,
            ),
            state=self._state,
            heard=Heard(places.heard),
            observe=self._observe,
            apply=self._apply,
            confirm=self._confirm,
            preparing=self._workers.preparing,
        )

    def _ports_held(self) -> set[int]:
        return self._workers.ports_held()

    def _apply(self, desired: Desired) -> None:
        if self._mesh is not None:
            self._mesh.apply(desired)
        self._workers.apply(desired)
        self._runtime.sweep(self._workers.names())

    def _confirm(self) -> None:
        self._workers.confirm()
        self._runtime.sweep(self._workers.names())

    def _changed(self) -> None:
        self._channel.changed()

    def start(self) -> None:
        if self._discovery is not None:
            self._discovery.start()
        desired = self._state.read().desired
        if self._mesh is not None:
            self._mesh.start()
            if desired is not None:
                self._mesh.apply(desired)
        self._runtime.open()
        self._events.start()
        self._workers.adopt(desired)
        self._shipper.start()
        if self._discovery is not None:
            self._discovery.wait(_DISCOVERY_SECONDS)
        self._look()
        self._channel.start()

    def run(self, ended: threading.Event) -> None:
        while not ended.wait(_LOOK_SECONDS):
            try:
                self._look()
            except Exception:
                log.exception("the machine could not be looked at, tried again")

    def close(self) -> None:
        self._channel.close()
        self._shipper.close()
        self._workers.close()
        if self._mesh is not None:
            self._mesh.close()
        self._runtime.close()
        if self._discovery is not None:
            self._discovery.close()

    def _look(self) -> None:
        """What changes by itself on the machine."""
        found = self._inventory(), self._busy_ports.read()
        if found != self._looked:
            self._looked = found
            self._channel.changed()

    def _observe(self) -> Observed:
        return Observed(
            inventory=self._looked[0],
            assignments=self._workers.reports(),
            busy_ports=self._busy_ports.read(),
            mesh=self._mesh.report() if self._mesh is not None else None,
        )


def agent_run(config: Config) -> None:
    """Until SIGTERM or SIGINT. Raises ConfigError."""
    lock = _lock(config.state)
    limits_raise()
    ended = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: ended.set())
    agent = Agent(config)
    log.info(
        "agent started name=%s server=%s state=%s pid=%d",
        config.name,
        config.server,
        config.state,
        os.getpid(),
    )
    agent.start()
    agent.run(ended)
    agent.close()
    os.close(lock)
    log.info("agent ended, workers go on")


def _lock(state: Path) -> int:
    """Two agents on one state directory would both be "the" agent of the machine."""
    descriptor = os.open(state / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(
            f"An agent already runs on {state}. Stop it first, or use another --state-dir."
        ) from None
    return descriptor


def mesh_of(config: Config, address: Callable[[], str], changed: Callable[[], None]) -> Mesh | None:
    """None where workers share the machine's network anyway."""
    if config.runtime != "docker":
        return None
    return Mesh(
        config.state, Settings(config.mesh_port, config.mesh_endpoint, on=config.mesh), address, changed
    )


def _discovery(config: Config, boot_id: str) -> Discovery | None:
    """None on a machine that only pretends to have its devices."""
    if config.simulate:
        return None
    return Discovery(config.state, boot_id, check=partial(machine_checks, config=config))


def _runtime(
    config: Config,
    places: Places,
    address: Callable[[], str],
    port_taken: Callable[[int], None],
    mesh: Mesh | None,
) -> Runtime:
    if mesh is None:
        return Bubblewrap(config, places, address, port_taken)
    from agent.containers.docker_runtime import Docker  # the SDK takes half a second to load

    return Docker(config, places, address, port_taken, mesh)


def _inventory(config: Config, runtime: Runtime, discovery: Discovery | None) -> InventorySource:
    real = real_inventory(runtime.version(), runtime.limits())
    if discovery is not None:
        return DiscoveredInventory(real, discovery, config.gpus)
    try:
        return simulated_source(real, SimulatedFile(Path(config.simulate or "")), config.gpus)
    except SimulateError as error:
        raise ConfigError(str(error)) from error


def address_source(config: Config) -> Callable[[], str]:
    """The address given, or the one of the route to the console, looked up now and then."""
    if config.address:
        given = config.address
        return lambda: given
    known = ("", -_ADDRESS_SECONDS)

    def address() -> str:
        nonlocal known
        if time.monotonic() - known[1] >= _ADDRESS_SECONDS:
            known = (route_address(config.server), time.monotonic())
        return known[0]

    return address


def boot_id_read() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def limits_raise() -> None:
    """Workers inherit these: open files, and memory that RDMA and pinned buffers lock."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = min(most, _MOST_FILES) if most != resource.RLIM_INFINITY else _MOST_FILES
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    _, locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (locked, locked))
