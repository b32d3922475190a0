"""A worker's output on its way to the disk, and the pokes that tell the agent of it."""

import os
import time

from agent.supervision.masking import Masker

POKE_SECONDS = 0.02


class Pokes:
    """Tells a running agent, through its FIFO, to look at this worker. Without an agent nothing happens."""

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._name = name
        self._descriptor = -1

    def send(self, what: str) -> None:
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
            os.write(self._descriptor, f"{what} {self._name}\n".encode())
        except OSError:  # no agent (ENXIO, EPIPE), or one with enough pokes waiting (EAGAIN)
            return


class Log:
    """stdout and stderr as one stream. Never blocks the worker: what finds no room on the disk is dropped,
    and a line in its place says how much it was. `masks` are values that must not be in it."""

    def __init__(self, pokes: Pokes, masks: list[bytes]) -> None:
        self._descriptor = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._pokes = pokes
        self._masker = Masker(masks) if masks else None
        self._poked = 0.0
        self._unpoked = False
        self._lost = 0

    def write(self, data: bytes) -> None:
        self._append(self._masker.feed(data) if self._masker else data)

    def finish(self) -> None:
        """Nothing more comes."""
        self._append(self._masker.rest() if self._masker else b"")

    def _append(self, data: bytes) -> None:
        if not data:
            return
        if self._lost:
            gap = f"\n[{self._lost} bytes of output were lost: the disk of this machine was full]\n".encode()
            if self._put(gap) == len(gap):
                self._lost = 0
        self._lost += len(data) - (0 if self._lost else self._put(data))
        self._unpoked = True
        self.poke_when_due()

    def _put(self, data: bytes) -> int:
        """Bytes written, fewer than given when the disk is full."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            return len(data) - len(view)
        return len(data)

    def poke_when_due(self) -> float | None:
        """Seconds until the next poke is due; None when none is."""
        if not self._unpoked:
            return None
        wait = self._poked + POKE_SECONDS - time.monotonic()
        if wait > 0:
            return wait
        self._pokes.send("log")
        self._poked, self._unpoked = time.monotonic(), False
        return None
