"""Redis carries nudges only: everything here may be lost or missing at any moment, and a sweep makes it good."""

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar

import redis
from django.conf import settings
from django.db import transaction
from redis.backoff import NoBackoff
from redis.retry import Retry

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 2
P = ParamSpec("P")
T = TypeVar("T")


@lru_cache(maxsize=1)
def client() -> redis.Redis:
    return connect(settings.REDIS_URL)


def connect(url: str) -> redis.Redis:
    """A client that gives up at once: tried again only on a connection that Redis has closed meanwhile."""
    return redis.Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 1),
    )


def attempt(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """`call`'s answer, or None when Redis is away: no request fails because a nudge could not be sent."""
    try:
        return call(*args, **kwargs)
    except (redis.RedisError, OSError) as error:
        log.warning("redis is away: %s", error)
        return None


def publish(channel: str, message: str) -> None:
    attempt(client().publish, channel, message)


def publish_on_commit(channel: str, message: str) -> None:
    transaction.on_commit(lambda: publish(channel, message))


def task_send(task: Any, *args: Any, **options: Any) -> None:
    """Queues a Celery task now; a broker that is away costs a warning."""
    try:
        task.apply_async(args=args, **options)
    except Exception as error:  # noqa: BLE001 - kombu wraps transport errors in many types
        log.warning("could not queue %s: %s", task.name, error)


def task_send_on_commit(task: Any, *args: Any, **options: Any) -> None:
    transaction.on_commit(lambda: task_send(task, *args, **options))
