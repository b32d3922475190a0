"""The Docker Engine's API as far as a supervisor needs it: HTTP on a Unix socket, by the standard library alone."""

import http.client
import json
import os
import socket
from typing import Any

_SECONDS = 120.0
"""An engine that is asked for nothing but a look, a start or a signal is stuck when it takes longer."""
_HEAD_BYTES = 65536
_UPGRADED = (200, 101)
_FAILED = 400


class EngineError(Exception):
    """The engine refused, with its words; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = _connected(self._path)


def engine_ask(path: str, method: str, address: str) -> Any:
    """What the engine at the socket `path` answers. Raises EngineError, and OSError where nobody answers."""
    connection = _Connection(path)
    try:
        connection.request(method, address)
        answer = connection.getresponse()
        body = answer.read()
    except http.client.HTTPException as error:  # it ended in the middle of its answer
        raise ConnectionResetError(*error.args) from error
    finally:
        connection.close()
    if answer.status >= _FAILED:
        raise EngineError(answer.status, _said(body))
    return json.loads(body) if body else None


class DockerEngine:
    """One container's engine. Everything raises EngineError, and OSError where nobody answers."""

    def __init__(self, path: str, container: str) -> None:
        self._path = path
        self._container = f"/containers/{container}"

    def look(self) -> dict[str, Any]:
        """The container as `docker inspect` shows it."""
        found: dict[str, Any] = self._ask("GET", "/json")
        return found

    def start(self) -> None:
        self._ask("POST", "/start")

    def signal(self, signum: int) -> None:
        self._ask("POST", f"/kill?signal={signum}")

    def answers(self) -> bool:
        """Whether anybody listens; one that has just started listens before it answers."""
        try:
            _connected(self._path).close()
        except OSError:
            return False
        return True

    def _ask(self, method: str, path: str) -> Any:
        return engine_ask(self._path, method, self._container + path)

    def attach(self) -> "Output":
        """What the container writes from now on."""
        connection = _connected(self._path)
        try:
            connection.sendall(
                f"POST {self._container}/attach?stream=1&stdout=1&stderr=1 HTTP/1.1\r\nHost: localhost\r\n"
                "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode()
            )
            status, rest = _head(connection)
        except BaseException:
            connection.close()
            raise
        if status not in _UPGRADED:
            connection.close()
            raise EngineError(status, _said(rest))
        return Output(connection, rest)


_FRAME_HEAD = 8


class Output:
    """A container's stdout and stderr, which come in frames: a kind, three zeros, the length, the bytes."""

    def __init__(self, connection: socket.socket, received: bytes) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._received = received
        self._left = 0  # of the frame whose beginning has been read

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self, size: int) -> bytes | None:
        """Bytes of the container, perhaps none; None: nothing more will come. Never waits."""
        try:
            data = self._connection.recv(size)
        except BlockingIOError:
            return self._unframed()
        except OSError:
            data = b""
        self._received += data
        return self._unframed() or (b"" if data else None)

    def _unframed(self) -> bytes:
        pieces = []
        while self._received:
            if not self._left:
                if len(self._received) < _FRAME_HEAD:
                    break
                self._left = int.from_bytes(self._received[4:_FRAME_HEAD], "big")
                self._received = self._received[_FRAME_HEAD:]
            piece = self._received[: self._left]
            pieces.append(piece)
            self._received = self._received[len(piece) :]
            self._left -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        self._connection.close()


def _connected(path: str) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    found.settimeout(_SECONDS)
    try:
        found.connect(path)
    except OSError:
        found.close()
        raise
    return found


def _head(connection: socket.socket) -> tuple[int, bytes]:
    """The answer's status, and what has come after its head."""
    text = b""
    while b"\r\n\r\n" not in text:
        data = connection.recv(4096)
        if not data or len(text) > _HEAD_BYTES:
            raise ConnectionResetError("the engine's answer ended early")
        text += data
    head, _, rest = text.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), rest


def _said(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return os.fsdecode(body[:300]) or "it gave no reason"
