"""`GET /live/runs/<id>` and `/live/workspaces/<id>`: server-sent events that say "read again"."""

import asyncio
import re
import time

from common.errors import NotFound
from console.streams import http
from console.streams.database import in_thread
from console.streams.hub import hub
from console.streams.who import actor_find
from runs.models import Run
from tenancy.access import workspace_grants
from tenancy.models import Workspace
from tenancy.roles import Permission

PATH = re.compile(r"^/live/(runs|workspaces)/(\d{1,18})$")
EVENTS = {"runs": ("run", "run"), "workspaces": ("workspace", "runs")}
"""Address → key of the hub, name of the event."""
RIGHTS_SECONDS = 30
"""How long rights are believed."""
TOGETHER_SECONDS = 0.1
"""Changes within this time are one event."""


async def app(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
    try:
        kind, number = _address(scope)
        await in_thread(_require, scope, kind, number)
    except http.HttpError as error:
        await http.answer_error(send, error)
        return
    await http.begin(send, 200, "text/event-stream", x_accel_buffering="no")
    await http.until_gone(receive, _events(scope, kind, number, send))


def _address(scope: http.Scope) -> tuple[str, int]:
    match = PATH.match(scope["path"])
    if match is None:
        raise http.HttpError(404, "No such address", "There is no such stream.")
    if scope["method"] != "GET":
        raise http.HttpError(405, "Wrong method", "Streams are read with GET.", allow="GET")
    return match.group(1), int(match.group(2))


async def _events(scope: http.Scope, kind: str, number: int, send: http.Send) -> None:
    key, name = EVENTS[kind]
    checked = time.monotonic()
    with hub.listen(f"{key}:{number}") as event:
        await _send(send, ": hello\n\n")
        while True:
            woken = await http.wait(event, RIGHTS_SECONDS / 2)
            if hub.closing:
                await _end(send)
                return
            if time.monotonic() - checked > RIGHTS_SECONDS:
                try:
                    await in_thread(_require, scope, kind, number)
                except http.HttpError:
                    await _end(send)
                    return
                checked = time.monotonic()
            await _send(send, f"event: {name}\ndata: 1\n\n" if woken else ": still here\n\n")
            await asyncio.sleep(TOGETHER_SECONDS)


async def _send(send: http.Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _end(send: http.Send) -> None:
    await send({"type": "http.response.body", "body": b""})


def _require(scope: http.Scope, kind: str, number: int) -> None:
    actor = actor_find(scope)
    workspace: Workspace | None
    if kind == "runs":
        run = Run.objects.select_related("workspace").filter(id=number).first()
        workspace = run.workspace if run else None
    else:
        workspace = Workspace.objects.filter(id=number).first()
    if workspace is None or Permission.READ_RUNS not in workspace_grants(actor, workspace):
        error = NotFound()
        raise http.HttpError(404, error.title, error.message)
