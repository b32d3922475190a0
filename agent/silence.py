"""Hung workers: nothing written and no GPU busy for too long."""

import time
from collections.abc import Callable, Collection

from wire.quantities import format_duration

GpusBusy = Callable[[Collection[str]], bool | None]
"""Whether one of these GPUs (UUIDs) works now; None when that can't be told. Answers within milliseconds."""

_SAMPLE_SECONDS = 5.0


def simulated_gpus_busy(_uuids: Collection[str]) -> bool | None:
    """Simulated devices have nothing to do."""
    return False


class Silence:
    """The time since a worker showed a sign of life.

    It counts from when this agent first looked, and not while the machine sleeps: a worker is never given up for
    time in which nobody could see it. GPUs of which nothing is known count as busy.
    """

    def __init__(
        self,
        limit_seconds: float,
        uuids: Collection[str],
        gpus_busy: GpusBusy,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit_seconds
        self._uuids = uuids
        self._gpus_busy = gpus_busy
        self._clock = clock
        self._log_size = -1
        self._since = clock()
        self._sampled = self._since - _SAMPLE_SECONDS

    def look(self, log_size: int) -> str:
        """Why the worker counts as hung; empty while it doesn't."""
        now = self._clock()
        if log_size != self._log_size:
            self._log_size, self._since = log_size, now
        if now - self._sampled >= _SAMPLE_SECONDS:
            self._sampled = now
            if self._gpus_busy(self._uuids) is not False:
                self._since = now
        if now - self._since < self._limit:
            return ""
        idle = " while its GPUs were idle" if self._uuids else ""
        return f"hung: no log line for {format_duration(self._limit)}{idle}"
