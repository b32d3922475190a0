"""What every runtime does to give a worker its supervisor: settings, the rendezvous port, the process."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.journal import Entry
from agent.ports import PortTakenError, port_hold
from agent.runtime import NotPrepared
from agent.secrets import handover
from agent.spare import Spare, supervisor_start
from wire.assignments import Assignment

_DEFAULT_GRACE_SECONDS = 30


@dataclass(frozen=True)
class Places:
    """What supervisors and the agent agree on."""

    events: Path
    heard: Path
    boot_id: str


def common_settings(places: Places, entry: Entry, assignment: Assignment) -> dict[str, object]:
    """Those that supervisors of all runtimes read from `launch`. Raises NotPrepared."""
    stop_signal = signal_number(assignment.stop_signal)
    # As a warning SIGKILL would end the worker.
    warning = None if stop_signal == signal.SIGKILL else assignment.warn_signal_seconds
    return {
        "id": entry.id,
        "boot": places.boot_id,
        "events": places.events,
        "heard": places.heard,
        "stop_signal": stop_signal,
        "stop_grace": assignment.stop_grace_seconds,
        "time_limit": assignment.time_limit_seconds or "",
        "warn": warning or "",
        "cut_off": assignment.stop_when_cut_off_seconds or "",
    }


def settings_text(settings: Mapping[str, object]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in settings.items()).encode()


@contextmanager
def handed_over(
    assignment: Assignment, machine: str, port_taken: Callable[[int], None]
) -> Iterator[dict[str, int]]:
    """What a supervisor gets beside its settings, open descriptors by name: the rendezvous port, secrets. This
    process's own are closed at the end. Raises NotPrepared."""
    with ExitStack() as stack:
        held: dict[str, int] = {}
        port = _port_reserve(assignment, machine, port_taken)
        if port:
            held["port"] = stack.enter_context(port).fileno()
        secrets = handover(assignment)
        if secrets is not None:
            stack.callback(os.close, secrets)
            held["secrets"] = secrets
        yield held


def _port_reserve(
    assignment: Assignment, machine: str, port_taken: Callable[[int], None]
) -> socket.socket | None:
    """The rendezvous port, held until the leader starts; None for other workers, and on the mesh, where the port is the
    worker's own. Raises NotPrepared."""
    if assignment.rendezvous_port is None or assignment.mesh is not None:
        return None
    try:
        return port_hold(assignment.rendezvous_port)
    except PortTakenError:
        port_taken(assignment.rendezvous_port)
        raise NotPrepared(f"port {assignment.rendezvous_port} is in use on {machine}") from None


def order_stop(entry: Entry, word: str) -> None:
    """ "stop", or the kind of a failure."""
    assignment = entry.assignment
    signum = signal_number(assignment.stop_signal) if assignment else int(signal.SIGTERM)
    grace = assignment.stop_grace_seconds if assignment else _DEFAULT_GRACE_SECONDS
    entry.order_write(f"{word} {signum} {grace}")


def signal_number(name: str) -> int:
    """ "SIGTERM", "TERM" or "15". Raises NotPrepared."""
    try:
        if name.isdecimal():
            return int(signal.Signals(int(name)))
        return int(signal.Signals[name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"])
    except (KeyError, ValueError):
        raise NotPrepared(
            f"{name} is no signal. Set `stop_signal` to one such as SIGTERM or SIGINT."
        ) from None


class Supervisors:
    """The supervisors that this agent has started. Safe to use from several threads."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._spare = Spare()

    def open(self) -> None:
        self._spare.fill()

    def close(self) -> None:
        self._spare.close()

    def launch(self, entry: Entry, held: Mapping[str, int]) -> None:
        """`held`: descriptors that it gets, by name."""
        supervisor = self._spare.send(entry.path, held) or supervisor_start(entry.path, held)
        with self._lock:
            self._processes[entry.id] = supervisor

    def is_running(self, entry: Entry) -> bool:
        """One that this agent started; it may not have locked yet. Reaps it when it has ended."""
        with self._lock:
            supervisor = self._processes.get(entry.id)
            if supervisor is None:
                return False
            if supervisor.poll() is None:
                return True
            del self._processes[entry.id]
            return False

    def release(self, entry: Entry) -> None:
        with self._lock:
            supervisor = self._processes.pop(entry.id, None)
        if supervisor is not None:
            supervisor.wait()
