"""Rendezvous ports: which are taken on this machine, and holding one until its leader starts."""

import errno
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from wire.environment import RENDEZVOUS_PORTS

_LOOK_SECONDS = 5.0
_NOTED_SECONDS = 60.0
_LISTEN = "0A"
_SO_ATTACH_FILTER = 26
_DROP_EVERYTHING = struct.pack("HBBI", 0x06, 0, 0, 0)  # classic BPF: "return 0 bytes of the packet"


class PortTakenError(Exception):
    """Something on this machine listens on the port."""


def port_hold(port: int) -> socket.socket:
    """A socket that keeps others off the port on all addresses until it is closed. Raises PortTakenError,
    and OSError where the port can't be had for another reason.

    It listens, because the kernel lets two sockets share a port that are merely bound with SO_REUSEADDR (which
    is needed: connections of a former run may still be in TIME_WAIT). But it answers nobody: a filter drops
    what arrives, so that a worker that is early gets no connection that breaks when the real leader comes.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        with suppress(PermissionError):  # some kernels let only root filter; then early workers just retry
            _drop_everything(held)
        held.bind(("", port))
        held.listen(1)
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTakenError(str(port)) from error
        raise
    return held


def _drop_everything(held: socket.socket) -> None:
    import ctypes

    program = ctypes.create_string_buffer(_DROP_EVERYTHING, len(_DROP_EVERYTHING))
    held.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))


class BusyPorts:
    """The busy ports, looked up now and then, and at once those on which a worker of ours just failed: the
    console must know of such a port before it places the run anew. Safe to use from several threads."""

    def __init__(
        self, own: Callable[[], Collection[int]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._own = own
        self._clock = clock
        self._found: tuple[int, ...] = ()
        self._found_at = -_LOOK_SECONDS
        self._noted: dict[int, float] = {}
        self._lock = threading.Lock()

    def note(self, port: int) -> None:
        if port in RENDEZVOUS_PORTS:
            with self._lock:
                self._noted[port] = self._clock()

    def read(self) -> tuple[int, ...]:
        now, own = self._clock(), self._own()
        with self._lock:
            if now - self._found_at >= _LOOK_SECONDS:
                self._found, self._found_at = busy_ports(own), now
                self._noted = {port: at for port, at in self._noted.items() if now - at < _NOTED_SECONDS}
            return tuple(sorted({*self._found, *self._noted}))


def busy_ports(own: Collection[int], *, proc: Path = Path("/proc")) -> tuple[int, ...]:
    """Rendezvous ports on which something listens that is none of `own`."""
    listening: set[int] = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError):  # a kernel without IPv6 has no tcp6
            listening.update(_listening((proc / "net" / name).read_text().splitlines()[1:]))
    return tuple(sorted(port for port in listening if port in RENDEZVOUS_PORTS and port not in own))


def _listening(lines: Iterable[str]) -> Iterable[int]:
    for line in lines:
        columns = line.split()
        if len(columns) > 3 and columns[3] == _LISTEN:  # noqa: PLR2004 - local, remote, state
            yield int(columns[1].rpartition(":")[2], 16)
