"""The logs of all workers of a run, each line with its worker's name before it."""

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

from astra.client import Client
from astra.errors import AstraError, NotFoundError, UnreachableError
from astra.logs import Wanted, WorkerLog
from astra.output import get, is_terminal, word
from astra.states import RUN_ENDED
from astra.terminal import RESET
from astra.waiting import POLL_SECONDS, Patience

LONGEST_LINE = 64 * 1024
"""A line that is longer is passed on in pieces: a worker without line ends can't fill the memory."""
_QUEUED_PIECES = 256
_LOOK_FOR_WORKERS_SECONDS = 5.0


class Lines:
    """Cuts one worker's bytes into lines with a prefix.

    With `fold`, for terminals: of a progress bar only its last state, and no colour beyond the line's end, because
    the next line is another worker's.
    """

    def __init__(self, worker: str, *, fold: bool = False) -> None:
        self._prefix = f"{worker} | ".encode()
        self._fold = fold
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            whole.append(self._rest)
            self._rest = b""
        return b"".join(self._prefix + self._shown(line) + b"\n" for line in whole)

    def _shown(self, line: bytes) -> bytes:
        if not self._fold:
            return line
        last = line.rstrip(b"\r").rpartition(b"\r")[2]
        return last + RESET.encode() if b"\x1b[" in last else last

    def finish(self) -> bytes:
        return self.feed(b"\n") if self._rest else b""


def workers_of(run: Any) -> list[str]:
    """Names in rank order, as the server lists them."""
    workers = get(run, "status", "workers")
    return [word(worker, "name") for worker in workers] if isinstance(workers, list) else []


def read_run(client: Client, run: Any, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    """(worker, whole lines with prefix): one worker after the other, or all at once when followed."""
    if wanted.follow:
        yield from _Followed(client, word(run, "metadata", "name"), wanted).read(run)
        return
    for worker in workers_of(run):
        lines = Lines(worker, fold=is_terminal())
        for data in WorkerLog(client, worker, wanted).read():
            yield worker, lines.feed(data)
        yield worker, lines.finish()


class _Followed:
    """A thread for each worker fills a bounded queue; the caller's thread alone writes.

    The threads are daemons and never touch stdout, so that Ctrl-C and a broken pipe end the process at once.
    """

    def __init__(self, client: Client, run: str, wanted: Wanted) -> None:
        self._client = client
        self._run = run
        self._wanted = wanted
        self._queue: queue.Queue[tuple[str, bytes | AstraError | None]] = queue.Queue(_QUEUED_PIECES)
        self._known: set[str] = set()
        self._reading: set[str] = set()

    def read(self, run: Any) -> Iterator[tuple[str, bytes]]:
        self._begin(run)
        patience = Patience()
        ended = False
        while self._reading or not ended:
            # Astraeus may choose another number of machines for a later attempt: then there are new workers.
            yield from self._pieces(_LOOK_FOR_WORKERS_SECONDS if self._reading else POLL_SECONDS)
            try:
                ended = self._look_again()
            except UnreachableError as error:
                patience.failed(error)
            else:
                patience.succeeded()

    def _look_again(self) -> bool:
        """Whether the run has ended, or is gone."""
        try:
            run = self._client.run_get(self._run)
        except NotFoundError:
            return True
        self._begin(run)
        return word(run, "status", "state") in RUN_ENDED

    def _begin(self, run: Any) -> None:
        for worker in workers_of(run):
            if worker not in self._known:
                self._known.add(worker)
                self._reading.add(worker)
                threading.Thread(target=self._work, args=(worker,), daemon=True).start()

    def _work(self, worker: str) -> None:
        lines = Lines(worker, fold=is_terminal())
        last: AstraError | None = None
        try:
            for data in WorkerLog(self._client, worker, self._wanted, run=self._run).read():
                if whole := lines.feed(data):
                    self._queue.put((worker, whole))
        except NotFoundError:
            pass  # the run was deleted, or this worker has no part in a later attempt
        except AstraError as error:
            last = error
        if rest := lines.finish():
            self._queue.put((worker, rest))
        self._queue.put((worker, last))

    def _pieces(self, seconds: float) -> Iterator[tuple[str, bytes]]:
        """What comes in within `seconds`; ends sooner when the last worker has ended."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                worker, piece = self._queue.get(timeout=left)
            except queue.Empty:
                return
            if isinstance(piece, bytes):
                yield worker, piece
                continue
            self._reading.discard(worker)
            if piece is not None:
                raise piece
            if not self._reading:
                return
