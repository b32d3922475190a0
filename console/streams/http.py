"""The little HTTP that the plain ASGI applications need."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from django.core.serializers.json import DjangoJSONEncoder

from common.problem import CONTENT_TYPE, problem

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class HttpError(Exception):
    """An answer other than 200: status, title, sentence."""

    def __init__(self, status: int, title: str, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.title, self.detail, self.headers = status, title, detail, headers


def header(scope: Scope, name: bytes) -> bytes:
    """The first header of this (lower-case) name; empty when there is none."""
    found: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return found


def query(scope: Scope, allowed: Iterable[str]) -> dict[str, str]:
    """The query's parameters. Raises HttpError for one that is unknown."""
    known = tuple(allowed)
    found = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    for name in found:
        if name not in known:
            raise HttpError(
                400,
                "Unknown parameter",
                f"`{name[:60]}` is not a parameter here; it takes {', '.join(known)}.",
            )
    return {name: values[-1] for name, values in found.items()}


async def body(receive: Receive, limit: int) -> bytes:
    """The request's body. Raises HttpError 413 when it is over `limit` bytes."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError("the client went away")
        size += len(message.get("body", b""))
        if size > limit:
            raise too_large(limit)
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


class Limited:
    """`receive` for an application that takes bodies of any size: beyond `limit` bytes the client seems to go away,
    and `exceeded` says why."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._limit, self._size = receive, limit, 0

    @property
    def exceeded(self) -> bool:
        return self._size > self._limit

    async def __call__(self) -> MutableMapping[str, Any]:
        message = {} if self.exceeded else await self._receive()
        self._size += len(message.get("body", b""))
        return {"type": "http.disconnect"} if self.exceeded else message


def too_large(limit: int) -> HttpError:
    return HttpError(413, "Too large", f"The request is over {limit} bytes.")


async def answer(
    send: Send, status: int, data: Any, content_type: str = "application/json", **headers: str
) -> None:
    """A whole JSON answer (bytes are sent as they are)."""
    payload = data if isinstance(data, bytes) else json.dumps(data, cls=DjangoJSONEncoder).encode()
    await begin(send, status, content_type, **{"content-length": str(len(payload))}, **headers)
    await send({"type": "http.response.body", "body": payload})


async def answer_error(send: Send, error: HttpError) -> None:
    data = problem(error.status, error.title, error.detail, errors=[])
    await answer(send, error.status, data, CONTENT_TYPE, **error.headers)


async def begin(send: Send, status: int, content_type: str, **headers: str) -> None:
    """Status and headers of a streamed answer."""
    fields = {"content-type": content_type, "cache-control": "no-store", **headers}
    lines = [
        (name.replace("_", "-").lower().encode(), value.encode("latin-1")) for name, value in fields.items()
    ]
    await send({"type": "http.response.start", "status": status, "headers": lines})


async def gone(receive: Receive) -> None:
    """Returns when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def until_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Does `work` to its end, or until the client has gone away. Raises what `work` raises."""
    left = asyncio.ensure_future(gone(receive))
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait({left, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (left, working):
            task.cancel()


async def wait(event: asyncio.Event, seconds: float) -> bool:
    """Waits for `event`; True when it came, False when the time ran out. The event is ready for the next wait."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True


async def wait_any(events: Sequence[asyncio.Event], seconds: float) -> list[bool]:
    """Waits for one of `events` at least; tells of each whether it came, and makes those ready for the next wait."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    came = [event.is_set() for event in events]
    for event in events:
        event.clear()
    return came
