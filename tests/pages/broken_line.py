"""A line to a server that can be cut: connections end at once and new ones are refused until it is mended."""

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class BrokenLine:
    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._server = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._whole = True
        self.refused = 0
        """Connections that were tried while the line was cut."""
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            self._whole = False
            for each in self._open:
                self._end(each)

    def mend(self) -> None:
        with self._lock:
            self._whole = True

    def close(self) -> None:
        self._end(self._listener)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._join(client)

    def _join(self, client: socket.socket) -> None:
        with self._lock:
            if not self._whole:
                self.refused += 1
                client.close()
                return
            server = socket.create_connection(self._server)
            self._open |= {client, server}
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with self._lock:
            for each in (source, target):
                self._end(each)
                self._open.discard(each)
        source.close()

    @staticmethod
    def _end(each: socket.socket) -> None:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
