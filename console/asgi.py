"""The server's one entry: streams first, Django for everything else."""

import asyncio
import os
import signal
import threading
from types import FrameType
from typing import Any, cast

import django
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
django.setup()

from console.loading import load  # noqa: E402 - Django's apps must be loaded first
from console.streams import agents, http, live, logs, run_logs  # noqa: E402 - Django's apps must be loaded first
from console.streams.database import in_thread  # noqa: E402 - likewise
from console.streams.hub import hub  # noqa: E402 - likewise
from machines.silence import machines_heard_after_start  # noqa: E402 - likewise

pages = get_asgi_application()

LARGEST_BODY = 8 * 1024 * 1024
"""Bytes of a request: a form with a document of 2 MiB, typed and as a file, and room to spare."""


async def application(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["path"].startswith("/agent/"):
        await agents.app(scope, receive, send)
    elif scope["path"].startswith("/live/"):
        await live.app(scope, receive, send)
    elif logs.PATH.match(scope["path"]):
        await logs.app(scope, receive, send)
    elif run_logs.PATH.match(scope["path"]):
        await run_logs.app(scope, receive, send)
    else:
        await _pages(scope, receive, send)


async def _pages(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
    """Django keeps every body on its disk before it looks at the request: anybody could fill that."""
    limited = http.Limited(receive, LARGEST_BODY)
    await pages(dict(scope), limited, cast("Any", send))
    if limited.exceeded:
        await http.answer_error(send, http.too_large(LARGEST_BODY))


def _close_on(*signals: signal.Signals) -> None:
    """Ends what waits as soon as the server is told to end: it would else wait for them before it says so."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in signals:
        former = signal.getsignal(number)

        def handler(signum: int, frame: FrameType | None, former: Any = former) -> None:
            loop.call_soon_threadsafe(hub.close)
            if callable(former):
                former(signum, frame)

        signal.signal(number, handler)


async def _lifespan(receive: http.Receive, send: http.Send) -> None:
    await receive()
    await in_thread(machines_heard_after_start)
    load()
    hub.start()
    _close_on(signal.SIGTERM, signal.SIGINT)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await hub.stop()
    await send({"type": "lifespan.shutdown.complete"})
