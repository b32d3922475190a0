"""A worker's probes: a thread each, so that a slow one delays neither the others nor the agent."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Literal, Protocol

from agent.looks import Look
from agent.runtime import Lifeline
from wire.assignments import Probe, Probes

log = logging.getLogger(__name__)

Name = Literal["startup", "readiness", "liveness"]
LookAt = Callable[[Probe, Lifeline], Look]


class Listener(Protocol):
    """Is told what probes find, from their threads; answers whether the probe goes on."""

    def passed(self, name: Name) -> bool: ...

    def failed(self, name: Name, times: int, message: str) -> bool:
        """`times` in a row, at least the probe's threshold."""


class ProbeLoop(threading.Thread):
    def __init__(self, name: Name, probe: Probe, look_at: LookAt, listener: Listener) -> None:
        super().__init__(name=f"probe-{name}", daemon=True)
        self._kind: Name = name
        self._probe = probe
        self._look_at = look_at
        self._listener = listener
        self._lifeline: Lifeline | None = None
        self._closed = threading.Event()
        self._failures = 0

    def close(self) -> None:
        """Returns at once; a command inside the worker ends within moments."""
        self._closed.set()
        if self._lifeline:
            self._lifeline.cut()

    def run(self) -> None:
        # A worker that has just started is given a period before it must be alive.
        due = time.monotonic() + (self._probe.period_seconds if self._kind == "liveness" else 0)
        while not self._closed.wait(max(0.0, due - time.monotonic())):
            due = max(due, time.monotonic()) + self._probe.period_seconds
            try:
                found = self._look()
            except Exception:
                log.exception("the %s probe could not be tried, tried again", self._kind)
                continue
            if self._closed.is_set() or not self._goes_on(found):
                return

    def _look(self) -> Look:
        with Lifeline() as self._lifeline:
            if self._closed.is_set():  # else `close` has seen the lifeline
                return Look(None)
            return self._look_at(self._probe, self._lifeline)

    def _goes_on(self, found: Look) -> bool:
        if found.ok is None:
            return True
        if found.ok:
            self._failures = 0
            return self._listener.passed(self._kind)
        self._failures += 1
        if self._failures < self._probe.failure_threshold:
            return True
        return self._listener.failed(self._kind, self._failures, found.message)


class Probing:
    """All probes of one worker: the startup probe first, then the others."""

    def __init__(self, probes: Probes, look_at: LookAt, listener: Listener) -> None:
        self._probes = probes
        self._look_at = look_at
        self._listener = listener
        self._lock = threading.Lock()
        self._loops: list[ProbeLoop] = []
        self._closed = False

    def begin(self, *, started: bool) -> None:
        """`started`: the startup probe has succeeded already."""
        if self._probes.startup and not started:
            self._start("startup", self._probes.startup)
        else:
            self.go_on()

    def go_on(self) -> None:
        """The worker has started."""
        if self._probes.readiness:
            self._start("readiness", self._probes.readiness)
        if self._probes.liveness:
            self._start("liveness", self._probes.liveness)

    def _start(self, name: Name, probe: Probe) -> None:
        with self._lock:
            if not self._closed:
                loop = ProbeLoop(name, probe, self._look_at, self._listener)
                self._loops.append(loop)
                loop.start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for loop in self._loops:
                loop.close()
