"""One look at a worker: a command inside it, a connection to one of its ports, or a request over HTTP."""

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from agent import VERSION
from agent.runtime import Ran
from agent.signals import signal_name
from wire.assignments import HttpTarget, Probe

_LINE_LENGTH = 200
_STATUS_BYTES = 1024
_GOOD = range(200, 400)


@dataclass(frozen=True)
class Look:
    """`ok` is None when nothing can be said about the worker, for reasons that are not the worker's."""

    ok: bool | None
    message: str = ""


Run = Callable[[Sequence[str], float], Ran]
"""Runs a command inside the worker for at most so many seconds. Raises OSError."""


def look(probe: Probe, addresses: Sequence[str], run: Run) -> Look:
    """Takes at most the probe's time-out. `addresses`: where the worker's ports may be found, best first."""
    if probe.exec is not None:
        return _look_exec(probe.exec, probe.timeout_seconds, run)
    if probe.http is not None:
        return _look_http(probe.http, addresses, probe.timeout_seconds)
    return _look_tcp(probe.tcp or 0, addresses, probe.timeout_seconds)


def _look_exec(command: Sequence[str], seconds: float, run: Run) -> Look:
    try:
        ran = run(command, seconds)
    except OSError as error:
        return Look(None, f"no process can be started: {error.strerror}")
    said = _last_line(ran.output)
    if ran.error:
        return Look(False, ran.error)
    if ran.timed_out:
        return Look(False, f"no end within {seconds:g} s{said}")
    if ran.code is not None and ran.code < 0:
        return Look(False, f"ended by {signal_name(-ran.code)}{said}")
    return Look(ran.code == 0, f"exit {ran.code}{said}")


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f": {lines[-1][:_LINE_LENGTH]}" if lines else ""


def _look_tcp(port: int, addresses: Sequence[str], seconds: float) -> Look:
    try:
        _connect(port, addresses, time.monotonic() + seconds).close()
    except OSError as error:
        return Look(False, _refused(port, error, seconds))
    return Look(True)


def _connect(port: int, addresses: Sequence[str], due: float) -> socket.socket:
    """A connection to the first address that takes one. Raises OSError, the first address's."""
    first: OSError | None = None
    for address in addresses:
        left = due - time.monotonic()
        if left <= 0:
            break
        try:
            return socket.create_connection((address, port), timeout=left)
        except OSError as error:
            first = first or error
    raise first or TimeoutError


def _refused(port: int, error: OSError, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"port {port}: no answer within {seconds:g} s"
    return f"port {port}: {(error.strerror or str(error)).lower()}"


def _look_http(target: HttpTarget, addresses: Sequence[str], seconds: float) -> Look:
    due = time.monotonic() + seconds
    try:
        with _connect(target.port, addresses, due) as connection:
            status = _status(connection, target, due)
    except OSError as error:
        return Look(False, _refused(target.port, error, seconds))
    if status is None:
        return Look(False, f"port {target.port}: the answer is not HTTP")
    return Look(status in _GOOD, f"port {target.port}: HTTP {status}")


def _status(connection: socket.socket, target: HttpTarget, due: float) -> int | None:
    """The answer's status; only its first line is waited for. Raises OSError."""
    path = quote(target.path, safe="/%?#[]@!$&'()*+,;=:~-._")
    request = (
        f"GET {path} HTTP/1.1\r\nHost: localhost:{target.port}\r\nUser-Agent: astraeus-agent/{VERSION}\r\n"
    )
    connection.sendall(f"{request}Accept: */*\r\nConnection: close\r\n\r\n".encode())
    line = b""
    while b"\n" not in line and len(line) < _STATUS_BYTES:
        left = due - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        data = connection.recv(_STATUS_BYTES)
        if not data:
            break
        line += data
    words = line.split(b"\n", 1)[0].split()
    is_http = len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit()
    return int(words[1]) if is_http else None
