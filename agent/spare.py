"""A supervisor started ahead of its worker: the interpreter's start is half of the time to prepare one."""

import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger(__name__)

SUPERVISOR = Path(__file__).with_name("supervisor.py")
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
_REST_SECONDS = 1.0
"""The next spare waits so long: at once it would take the processor from the worker that is being prepared."""


class Spare:
    """At most one idle supervisor, which ends with this process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._closed = False

    def fill(self) -> None:
        """Have a supervisor ready, unless one is."""
        with self._lock:
            if self._closed or (self._idle is not None and self._idle[0].poll() is None):
                return
            try:
                self._idle = _started()
            except OSError as error:  # it is only a head start
                log.warning("no spare supervisor can be started: %s", error)

    def send(self, directory: Path, held: Mapping[str, int]) -> subprocess.Popen[bytes] | None:
        """Give the idle supervisor its worker and the descriptors `port` and `secrets`, as far as there are any.

        None when there is no idle one.
        """
        with self._lock:
            idle, self._idle = self._idle, None
        timer = threading.Timer(_REST_SECONDS, self.fill)
        timer.daemon = True
        timer.start()
        if idle is None or idle[0].poll() is not None:
            return None
        process, channel = idle
        with channel:
            try:
                names = "".join(f"{name}," for name in held).encode()
                socket.send_fds(channel, [names, b"\0", bytes(directory)], list(held.values()))
            except OSError:
                process.kill()
                return None
        return process

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, None
        if idle is not None:
            idle[1].close()
            idle[0].wait()


def supervisor_start(directory: Path, held: Mapping[str, int]) -> subprocess.Popen[bytes]:
    """A supervisor for this worker at once."""
    arguments = [str(directory), *(f"{name}={descriptor}" for name, descriptor in held.items())]
    return _start(arguments, stdin=subprocess.DEVNULL, pass_fds=tuple(held.values()))


def _started() -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        return _start([], stdin=theirs.fileno(), pass_fds=()), ours


def _start(arguments: list[str], *, stdin: int, pass_fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(SUPERVISOR), *arguments],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        pass_fds=pass_fds,
        start_new_session=True,
    )
