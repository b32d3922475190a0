"""Reading logs without losing or doubling a byte, whatever happens to connections.

The server tells the absolute offset of a body's first byte (`X-Log-Offset`), so after a break the same
attempt's log is asked for from the byte that is missing. Offsets belong to one attempt, so a followed log is
asked for by attempt.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from astra.client import Client, LogQuery
from astra.errors import DroppedError, NotFoundError, UnreachableError
from astra.output import note, word
from astra.states import RUN_ENDED, WORKER_ENDED
from astra.waiting import Patience

SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 2.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the reader asked for. Without `attempt`: the newest, and with `follow` those after it."""

    tail: int | None = None
    since: str | None = None
    attempt: int | None = None
    follow: bool = False


class WorkerLog:
    """One worker's log as a stream of bytes.

    With `run` it is followed as a part of that run: until the run has ended, through all its attempts.
    """

    def __init__(
        self,
        client: Client,
        worker: str,
        wanted: Wanted,
        *,
        run: str = "",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._worker = worker
        self._run = run
        self._wanted = wanted
        self._sleep = sleep
        self._attempt = wanted.attempt
        self._position: int | None = None

    def read(self) -> Iterator[bytes]:
        """Follows until the worker has ended when that is wanted, otherwise ends with what is there now."""
        return self._follow() if self._wanted.follow else self._whole()

    def _whole(self) -> Iterator[bytes]:
        patience = Patience(sleep=self._sleep)
        while True:
            begun = self._position
            try:
                yield from self._body(follow=False)
            except DroppedError as error:
                if self._position is None:
                    raise
                if self._position != begun:
                    patience.succeeded()
                patience.failed(error)
            else:
                return

    def _follow(self) -> Iterator[bytes]:
        patience, pause = Patience(sleep=self._sleep), SHORTEST_PAUSE
        while True:
            begun = self._position
            try:
                yield from self._body(follow=True)
                # Asked before the last bytes are fetched: an end seen now has all its bytes stored.
                worker = self._client.worker_get(self._worker)
                newest = self._client.worker_attempt(self._worker)
                ended = self._has_ended(worker, newest)
                if ended or self._is_older_than(newest):
                    yield from self._body(follow=False)
            except UnreachableError as error:
                if self._position is None:
                    raise
                if self._position != begun:
                    patience.succeeded()
                patience.failed(error)
                continue
            patience.succeeded()
            if self._is_older_than(newest):
                self._turn_to_next()
                continue
            if ended:
                return
            pause = SHORTEST_PAUSE if self._position != begun else min(pause * 2, LONGEST_PAUSE)
            self._sleep(pause)

    def _body(self, *, follow: bool) -> Iterator[bytes]:
        with self._client.worker_log(self._worker, self._query(follow=follow)) as body:
            self._attempt = self._attempt or body.attempt
            skip = self._line_up(body.offset)
            for chunk in body.chunks:
                piece = chunk[skip:]
                skip = max(0, skip - len(chunk))
                if piece:
                    self._position = (self._position or 0) + len(piece)
                    yield piece

    def _query(self, *, follow: bool) -> LogQuery:
        if self._position is not None:
            return LogQuery(follow=follow, attempt=self._attempt, offset=self._position)
        return LogQuery(
            follow=follow, tail=self._wanted.tail, since=self._wanted.since, attempt=self._attempt
        )

    def _line_up(self, offset: int) -> int:
        """How many bytes of the body the reader already has."""
        if self._position is not None and offset <= self._position:
            return self._position - offset
        if self._position is not None:
            note(f"{self._worker}: {offset - self._position} bytes of the log are no longer kept.")
        self._position = offset
        return 0

    def _has_ended(self, worker: Any, newest: int | None) -> bool:
        """A worker that ended may get another attempt, as long as its run has not ended."""
        ended = word(worker, "state") in WORKER_ENDED
        if self._wanted.attempt is not None:
            return ended or (newest is not None and newest > self._wanted.attempt)
        if self._run:
            return self._run_has_ended(self._run)
        if not ended or word(worker, "state") == "Succeeded":
            return ended
        run = word(worker, "run")
        return not run or self._run_has_ended(run)

    def _run_has_ended(self, run: str) -> bool:
        try:
            return word(self._client.run_get(run), "status", "state") in RUN_ENDED
        except NotFoundError:
            return True

    def _is_older_than(self, newest: int | None) -> bool:
        return (
            self._wanted.attempt is None
            and newest is not None
            and self._attempt is not None
            and newest > self._attempt
        )

    def _turn_to_next(self) -> None:
        """One by one: an attempt that was short is not left out."""
        self._attempt, self._position = (self._attempt or 0) + 1, 0
        note(f"{self._worker}: attempt {self._attempt}")
