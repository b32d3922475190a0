"""Database calls of the streams: a small thread pool, connections returned to the pool after each call."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.db import connection

THREADS = 8
P = ParamSpec("P")
T = TypeVar("T")
_pool = ThreadPoolExecutor(THREADS, thread_name_prefix="streams")


def _call(call: Callable[[], T]) -> T:
    try:
        return call()
    finally:
        connection.close()


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs `call`, which may use the database, without holding up the event loop."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_pool, _call, partial(call, *args, **kwargs))
