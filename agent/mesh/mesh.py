"""The thread that keeps this machine's mesh as the console wants it."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent.mesh import plan
from agent.mesh.system import MeshError, System, key_pair, missing, mtu_of
from wire.assignments import Desired
from wire.mesh import UNREACHABLE, MeshOrder, MeshReport, WorkerMesh, endpoint_of

log = logging.getLogger(__name__)

_LOOK_SECONDS = 10.0
_AGAIN_SECONDS = 2.0
_PAUSE_SECONDS = 0.5
_READY_SECONDS = 30.0


@dataclass(frozen=True)
class Settings:
    port: int
    endpoint: str | None = None
    """Where others reach it: an address and a port, `none`, or None for the machine's address."""
    on: bool = True
    """False: the console hears of no mesh here, asks for none, and so what there was of it is taken away."""


@dataclass(frozen=True)
class _Target:
    order: MeshOrder | None
    workers: tuple[WorkerMesh, ...] = ()

    def leads(self) -> bool:
        return any(worker.address == worker.leader for worker in self.workers)

    def holds(self, worker: WorkerMesh) -> bool:
        return self.order is not None and worker in self.workers


class Mesh:
    """`changed` is called when `report` would differ. Closing it leaves everything as it is, for workers and for the
    agent that comes next."""

    def __init__(
        self,
        state: Path,
        settings: Settings,
        address: Callable[[], str],
        changed: Callable[[], None],
    ) -> None:
        self._key = state / "mesh.key"
        self._settings = settings
        self._address = address
        self._changed = changed
        self._public_key = ""
        self._flaw = ""
        self._target: _Target | None = None
        self._settled: _Target | None = None
        self._rules = ""
        self._state = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="mesh", daemon=True)

    def start(self) -> None:
        """The key is there afterwards, or a reason why there is none; neither where there is to be no mesh at all."""
        if not self._settings.on and not self._key.exists():
            return
        lacking = missing()
        try:
            self._public_key = "" if lacking else key_pair(self._key)
        except (MeshError, OSError) as error:
            lacking = f"The mesh has no key: {error}"
        if lacking:
            log.warning("no mesh: %s", lacking)
            return
        self._thread.start()

    def close(self) -> None:
        with self._state:
            self._closed = True
            self._state.notify_all()

    @property
    def names(self) -> plan.Names:
        return plan.names_of(self._public_key)

    @property
    def mtu(self) -> int:
        return mtu_of(self._address())

    @property
    def order(self) -> MeshOrder | None:
        """What holds now on this machine."""
        with self._state:
            return self._settled.order if self._settled else None

    def report(self) -> MeshReport | None:
        """None: this machine can't be on a mesh."""
        if not self._public_key or not self._settings.on:
            return None
        return MeshReport(public_key=self._public_key, endpoint=self._endpoint(), flaw=self._flaw[:300])

    def _endpoint(self) -> str:
        given = self._settings.endpoint
        if given is not None:
            return "" if given == UNREACHABLE else given
        try:
            return endpoint_of(self._address(), self._settings.port)
        except ValueError:  # a name was given as the machine's address
            return ""

    def apply(self, desired: Desired) -> None:
        """Returns at once; `ready` waits for it."""
        workers = tuple(each.mesh for each in desired.assignments if each.mesh is not None)
        with self._state:
            self._target = _Target(desired.mesh, workers)
            self._state.notify_all()

    def ready(self, worker: WorkerMesh | None = None, seconds: float = _READY_SECONDS) -> str:
        """Waits until what was applied last is there, or a worker's place. Why it isn't, a sentence; empty: it is."""
        with self._state:
            done = self._state.wait_for(lambda: self._closed or self._holds(worker), seconds)
            return "" if done and not self._closed else self._flaw or "The mesh wasn't ready in time."

    def _holds(self, worker: WorkerMesh | None) -> bool:
        if self._settled is None:
            return False
        return self._settled is self._target if worker is None else self._settled.holds(worker)

    def _run(self) -> None:
        looked: _Target | None = None
        look_at = 0.0
        while not self._closed:
            with self._state:
                target = self._target
            if target is not None and (target is not looked or time.monotonic() >= look_at):
                flaw = self._try(target)
                looked, look_at = target, time.monotonic() + (_AGAIN_SECONDS if flaw else _LOOK_SECONDS)
                self._say(target, flaw)
            elif target is not None and target.leads():
                self._hairpins()
            with self._state:
                self._state.wait_for(lambda: self._closed or self._target is not looked, _PAUSE_SECONDS)  # noqa: B023 - ends here

    def _say(self, target: _Target, flaw: str) -> None:
        with self._state:
            said, self._flaw = self._flaw != flaw, flaw
            self._settled = self._settled if flaw else target
            self._state.notify_all()
        if said:
            log.warning("mesh: %s", flaw or "in order again")
            self._changed()

    def _hairpins(self) -> None:
        """Engines connect a worker while it starts, and tell nobody."""
        try:
            self._system().hairpins_ensure()
        except MeshError as error:
            log.warning("mesh: %s", error)

    def _system(self) -> System:
        return System(self.names, self._key, self._settings.port)

    def _try(self, target: _Target) -> str:
        try:
            self._settle(target)
        except MeshError as error:
            return str(error)
        except Exception as error:
            log.exception("mesh: unexpected error, tried again")
            return f"The mesh can't be set up: {error}"
        return ""

    def _settle(self, target: _Target) -> None:
        system, order = self._system(), target.order
        if order is None:
            if system.left():
                system.remove()
            self._rules = ""
            return
        self._require_apart(system, order)
        seen = system.interface_ensure(self._public_key)
        words = plan.peers_change(order.peers, seen.peers, time.time())
        if words:
            system.peers_set(words)
        system.addresses_ensure(order, self.mtu)
        rules = plan.rules(self.names, order, target.workers)
        if rules != self._rules or not system.rules_stand():
            system.rules_set(rules)
            self._rules = rules

    def _require_apart(self, system: System, order: MeshOrder) -> None:
        """Raises MeshError where the range would take packets away from the machine's own networks."""
        cut = plan.overlap(order.range, system.routes(), (self.names.interface, self.names.bridge))
        if cut:
            raise MeshError(
                f"The mesh's range {order.range} overlaps with {cut}. Set another range for the cluster."
            )
