"""`GET /live/runs/<id>` and `/live/workspaces/<id>`: server-sent events that say "read again".

A run's stream with `?logs=true` also says when its workers have printed something.
"""

import asyncio
import contextlib
import re

from django.db.models import F

from common.errors import NotFound
from console.streams import http
from console.streams.database import in_thread
from console.streams.hub import hub
from console.streams.who import RIGHTS_SECONDS, Rights, actor_find
from runs.models import Assignment, Run
from tenancy.access import workspace_grants
from tenancy.models import Workspace
from tenancy.roles import Permission

PATH = re.compile(r"^/live/(runs|workspaces)/(\d{1,18})$")
EVENTS = {"runs": ("run", "run"), "workspaces": ("workspace", "runs")}
"""Address → key of the hub, name of the event."""
LOOK_SECONDS = RIGHTS_SECONDS / 2
"""How long nothing is said at most."""
TOGETHER_SECONDS = 0.1
"""Changes within this time are one event."""


async def app(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
    try:
        kind, number = _address(scope)
        logs = http.query(scope, ("logs",)).get("logs") == "true" and kind == "runs"
        await in_thread(_require, scope, kind, number)
    except http.HttpError as error:
        await http.answer_error(send, error)
        return
    await http.begin(send, 200, "text/event-stream", x_accel_buffering="no")
    await http.until_gone(receive, _events(scope, kind, number, send, logs=logs))


def _address(scope: http.Scope) -> tuple[str, int]:
    match = PATH.match(scope["path"])
    if match is None:
        raise http.HttpError(404, "No such address", "There is no such stream.")
    if scope["method"] != "GET":
        raise http.HttpError(405, "Wrong method", "Streams are read with GET.", allow="GET")
    return match.group(1), int(match.group(2))


async def _events(scope: http.Scope, kind: str, number: int, send: http.Send, *, logs: bool) -> None:
    key, name = EVENTS[kind]
    rights = Rights(lambda: _require(scope, kind, number))
    with hub.listen(f"{key}:{number}") as event, Printed() as printed:
        await _send(send, ": hello\n\n")
        moved = True
        while True:
            if logs and moved:
                printed.listen(await in_thread(_log_keys, number))
            moved, lines = await http.wait_any((event, printed.event), LOOK_SECONDS)
            if hub.closing or not await rights.last():
                await _end(send)
                return
            await _send(send, _told((name, moved), ("log", lines)))
            await asyncio.sleep(TOGETHER_SECONDS)


def _told(*events: tuple[str, bool]) -> str:
    text = "".join(f"event: {name}\ndata: 1\n\n" for name, came in events if came)
    return text or ": still here\n\n"


class Printed(contextlib.ExitStack):
    """An event that is set when one of a run's workers prints something; which workers changes with its attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def listen(self, keys: list[str]) -> None:
        """From now on to these: begun before the others are left, so that nothing is missed in between."""
        former = self.pop_all()
        event = self.enter_context(hub.listen(*keys))
        if self.event.is_set():
            event.set()
        self.event = event
        former.close()


def _log_keys(run: int) -> list[str]:
    """Of the hub: the logs that may still grow, of the run and of those of its workers that start on their own."""
    found = Assignment.objects.filter(attempt__run__in=Run.objects.family(run))
    return [
        f"log:{each}" for each in found.exclude(log_final__lte=F("log_size")).values_list("id", flat=True)
    ]


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
