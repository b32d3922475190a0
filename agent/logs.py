"""Ships workers' logs: whole, in order, each byte once, however often agent and console are restarted.

The console names the offset it expects next, and shipping goes on from there, also backwards. What this agent
remembers itself is only where to begin.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from agent.backoff import Backoff
from agent.client import Console, ConsoleError
from agent.workers import Tail
from wire.agent_messages import (
    LOG_CHUNK_BYTES,
    LOG_REQUEST_BYTES,
    LOGS_PATH,
    LogChunkHeader,
    LogsAnswer,
    LogsHeader,
)

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_PACE_SECONDS = 0.05
"""Between requests while little is written: a row in the console for every printed line would be too many."""
_HEADER_BYTES = 256
"""More than one chunk takes in the header line."""


@dataclass(frozen=True)
class Chunk:
    header: LogChunkHeader
    data: bytes


class Logs(Protocol):
    """What there is to ship; `Workers` is one."""

    def tails(self) -> list[Tail]: ...

    def logs_shipped(self, names: Iterable[str]) -> None: ...


class LogShipper(threading.Thread):
    def __init__(self, console: Console, workers: Logs, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(name="logs", daemon=True)
        self._console = console
        self._workers = workers
        self._clock = clock
        self._offsets: dict[str, int] = {}
        self._confirmed: set[str] = set()
        self._wake = threading.Event()
        self._closed = threading.Event()

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._closed.set()
        self._wake.set()

    def run(self) -> None:
        backoff = Backoff()
        while not self._closed.is_set():
            self._wake.wait(_LOOK_SECONDS)
            self._wake.clear()
            wait = 0.0
            try:
                wait = self._ship()
                backoff.reset()
            except ConsoleError as error:
                wait = backoff.next(error.retry_after)
                log.debug("logs not shipped: %s", error)
                self._wake.set()
            except Exception:
                wait = backoff.next()
                log.exception("logs not shipped, tried again")
                self._wake.set()
            self._closed.wait(wait)

    def _ship(self) -> float:
        """One request, if there is anything to say. Seconds to wait before the next one."""
        tails = {tail.entry.id: tail for tail in self._workers.tails()}
        for gone in self._offsets.keys() - tails.keys():
            del self._offsets[gone]
            self._confirmed.discard(gone)
        chunks = self._gather(list(tails.values()))
        self._finish([tail for tail in tails.values() if tail.final and self._is_complete(tail)])
        if not chunks:
            return 0.0
        answer = self._console.send_bytes(LOGS_PATH, _body(chunks, self._clock()), LogsAnswer)
        progress = self._take_answer(answer, tails)
        self._wake.set()  # more may have been written meanwhile
        if not progress:
            return _LOOK_SECONDS
        full = sum(len(chunk.data) for chunk in chunks) >= LOG_CHUNK_BYTES
        return 0.0 if full else _PACE_SECONDS

    def _take_answer(self, answer: LogsAnswer, tails: dict[str, Tail]) -> bool:
        """Whether the console took anything."""
        before = dict(self._offsets)
        for name, offset in answer.next.items():
            if name in tails:
                self._offsets[name] = offset
                self._confirmed.add(name)
                tails[name].entry.shipped_write(offset)
        unknown = [name for name in answer.unknown if name in tails]
        if unknown:
            log.info("the console doesn't want these logs: %s", " ".join(unknown))
        self._finish([tails[name] for name in unknown])
        self._finish([tail for tail in tails.values() if tail.final and self._is_complete(tail)])
        return bool(unknown) or any(before.get(name) != offset for name, offset in self._offsets.items())

    def _is_complete(self, tail: Tail) -> bool:
        size = tail.entry.log_size()
        confirmed = tail.entry.id in self._confirmed
        return size == 0 or (confirmed and self._offsets.get(tail.entry.id, 0) >= size)

    def _finish(self, tails: list[Tail]) -> None:
        if tails:
            self._workers.logs_shipped([tail.entry.id for tail in tails])

    # --- what to send

    def _gather(self, tails: list[Tail]) -> list[Chunk]:
        """Up to a request's worth, one chunk of each worker in turn, so that a loud one leaves room."""
        chunks: list[Chunk] = []
        room = LOG_REQUEST_BYTES
        offsets = {tail.entry.id: self._start(tail) for tail in tails}
        pending = list(tails)
        while pending and room > LOG_CHUNK_BYTES + _HEADER_BYTES:
            still: list[Tail] = []
            for tail in pending:
                if room <= LOG_CHUNK_BYTES + _HEADER_BYTES:
                    break
                chunk = self._chunk(tail, offsets[tail.entry.id])
                if chunk is None:
                    continue
                chunks.append(chunk)
                offsets[tail.entry.id] += len(chunk.data)
                room -= len(chunk.data) + _HEADER_BYTES
                if len(chunk.data) == LOG_CHUNK_BYTES:
                    still.append(tail)
            pending = still
        return chunks

    def _start(self, tail: Tail) -> int:
        name = tail.entry.id
        if name not in self._offsets:
            self._offsets[name] = tail.entry.shipped()
        if tail.final and name not in self._confirmed:
            # Another agent shipped it. The last byte again makes the console say what it really has.
            return min(self._offsets[name], max(0, tail.entry.log_size() - 1))
        return self._offsets[name]

    def _chunk(self, tail: Tail, offset: int) -> Chunk | None:
        if tail.entry.log_size() <= offset:
            return None
        try:
            with (tail.entry.path / "log").open("rb") as file:
                file.seek(offset)
                data = file.read(LOG_CHUNK_BYTES)
        except OSError:
            return None
        if not data:
            return None
        header = LogChunkHeader(assignment=tail.entry.id, offset=offset, size=len(data), at=self._clock())
        return Chunk(header, data)


def _body(chunks: list[Chunk], sent_at: float) -> bytes:
    header = LogsHeader(chunks=tuple(chunk.header for chunk in chunks), sent_at=sent_at)
    return b"".join([header.model_dump_json().encode(), b"\n", *(chunk.data for chunk in chunks)])
