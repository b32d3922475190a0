"""Wake-ups: one Redis subscription a process, spread to everything in it that waits.

Waiting is: listen, then read, then wait. A message lost while Redis is away is made good by waking everybody
after the reconnect, and by the sweeps.
"""

import asyncio
import contextlib
import logging
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator

import redis.asyncio
from django.conf import settings
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from machines.services import WAKE_CHANNEL
from runs.events import LIVE_CHANNEL

log = logging.getLogger(__name__)

RECONNECT_SECONDS = 0.5
JITTER_SECONDS = 1.0
"""After a reconnect everybody is woken within this time, not at once."""


class Hub:
    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._moves: dict[str, int] = defaultdict(int)
        self._epoch = 0
        self._task: asyncio.Task[None] | None = None
        self.closing = False
        """The server is about to end: streams end too, polls are answered."""
        self.redis = redis.asyncio.Redis.from_url(
            settings.REDIS_URL, decode_responses=True, socket_connect_timeout=2, retry=Retry(NoBackoff(), 1)
        )

    def generation(self, key: str) -> tuple[int, int]:
        """Differs from an earlier answer when `key` may have changed since."""
        return self._epoch, self._moves[key]

    @contextlib.contextmanager
    def listen(self, *keys: str) -> Iterator[asyncio.Event]:
        """An event that is set when one of `keys` changes."""
        self.start()
        event = asyncio.Event()
        for key in keys:
            self._waiting[key].add(event)
        try:
            yield event
        finally:
            for key in keys:
                self._waiting[key].discard(event)
                if not self._waiting[key]:
                    del self._waiting[key]

    def start(self) -> None:
        """Begins to listen to Redis; called again it does nothing."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Wakes everybody for the last time."""
        self.closing = True
        self._wake_all()

    async def stop(self) -> None:
        """The process ends."""
        self.close()
        if self._task is not None:
            self._task.cancel()
        with contextlib.suppress(RedisError, OSError):
            await self.redis.aclose()

    async def _run(self) -> None:
        while True:
            try:
                async for key in self._messages():
                    self._wake(key)
            except (RedisError, OSError) as error:
                log.warning("redis is away: %s", error)
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _messages(self) -> AsyncIterator[str]:
        async with self.redis.pubsub() as subscription:
            await subscription.subscribe(WAKE_CHANNEL, LIVE_CHANNEL)
            async for message in subscription.listen():
                if message["type"] == "subscribe":
                    # Also after a reconnect, which the client makes by itself: what was sent meanwhile is lost.
                    self._epoch += 1
                    self._wake_all_with_jitter()
                if message["type"] != "message":
                    continue
                prefix = "machine:" if message["channel"] == WAKE_CHANNEL else ""
                for name in message["data"].split(","):
                    yield prefix + name

    def _wake(self, key: str) -> None:
        if key in self._moves:  # somebody asked for it: nothing is kept of the others
            self._moves[key] += 1
        for event in self._waiting.get(key, ()):
            event.set()

    def _wake_all(self) -> None:
        for events in list(self._waiting.values()):
            for event in events:
                event.set()

    def _wake_all_with_jitter(self) -> None:
        loop = asyncio.get_running_loop()
        for events in list(self._waiting.values()):
            for event in list(events):
                loop.call_later(random.uniform(0, JITTER_SECONDS), event.set)  # noqa: S311 - no secret


hub = Hub()
