"""`GET …/workers/<worker>/logs`: text, streamed; with `follow=true` until the worker has ended."""

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from console.numbers import number_read
from console.streams import http
from console.streams.database import in_thread
from console.streams.hub import hub
from console.streams.who import Rights, reader_workspace
from runs.explaining.moments import moment_read
from runs.logs import Piece, log_complete, log_first_offset, log_pieces, log_since_offset, log_tail_offset
from runs.models import Assignment, Worker
from runs.states import RUN_ENDED, WORKER_ENDED, AttemptState
from tenancy.models import Workspace
from wire.quantities import parse_duration

PATH = re.compile(r"^/api/v1/o/([-\w]+)/w/([-\w]+)/workers/([^/]+)/logs$")
MOST = 10**12
"""Of every number that is asked for: far more than any log has."""
PARAMETERS = ("tail", "since", "follow", "attempt", "offset")
LOOK_AGAIN_SECONDS = 5
"""How long a follower trusts the wake-ups before it looks by itself."""
MOST_LINES = 10_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What of which log."""

    worker_id: int
    attempt: int | None
    tail: int | None
    since: datetime | None
    offset: int | None
    follow: bool
    head: bool
    """Of the answer no more than its headers."""


@dataclass(frozen=True, slots=True)
class Source:
    """The assignment whose log is read, and where to begin."""

    assignment_id: str
    attempt: int
    start: int


async def app(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
    try:
        asked = await in_thread(_asked, scope)
        await http.until_gone(receive, _stream(asked, rights_asked(scope, PATH), send))
    except http.HttpError as error:
        await http.answer_error(send, error)


async def _stream(asked: Asked, rights: Rights, send: http.Send) -> None:
    source = await _source(asked, rights)
    if source is None:
        await http.answer(send, 200, b"", "text/plain; charset=utf-8", x_log_offset="0")
        return
    await http.begin(
        send,
        200,
        "text/plain; charset=utf-8",
        x_log_offset=str(source.start),
        x_log_attempt=str(source.attempt),
        x_accel_buffering="no",
        x_content_type_options="nosniff",
    )
    if not asked.head:
        await _send_from(source, asked, rights, send)
    await send({"type": "http.response.body", "body": b""})


async def _source(asked: Asked, rights: Rights) -> Source | None:
    """The log asked for; with `follow` it is waited for until the worker has one or its run is over."""
    while True:
        source, over = await in_thread(_find, asked)
        if source is not None or over or not asked.follow or hub.closing or not await rights.last():
            return source
        await asyncio.sleep(1)


async def _send_from(source: Source, asked: Asked, rights: Rights, send: http.Send) -> None:
    position = source.start
    with hub.listen(f"log:{source.assignment_id}") as event:
        while await rights.last():
            over = await in_thread(_over, source.assignment_id)
            pieces = await in_thread(_read, source.assignment_id, position, asked.offset is None)
            for piece in pieces:
                position = piece.next_offset
                await send({"type": "http.response.body", "body": piece.data, "more_body": True})
            if pieces:
                continue
            at_gap = await in_thread(_at_gap, source.assignment_id, position)
            if over or at_gap or not asked.follow or hub.closing:
                return
            await http.wait(event, LOOK_AGAIN_SECONDS)


def rights_asked(scope: http.Scope, path: re.Pattern[str]) -> Rights:
    """Those that `place_asked` has just looked at."""
    return Rights(lambda: place_asked(scope, path))


def place_asked(scope: http.Scope, path: re.Pattern[str]) -> tuple[Workspace, str]:
    """The workspace whose runs are read, and what of it; `path` matches the address. Raises HttpError."""
    match = path.match(scope["path"])
    assert match is not None  # noqa: S101 - the router matched it
    organization, workspace, name = match.groups()
    if scope["method"] not in {"GET", "HEAD"}:
        raise http.HttpError(405, "Wrong method", "Logs are read with GET.", allow="GET")
    # PostgreSQL keeps no NUL in a text, so no run or worker has one in its name.
    return reader_workspace(scope, organization, workspace), name.replace("\0", "�")


def _asked(scope: http.Scope) -> Asked:
    workspace, name = place_asked(scope, PATH)
    params = http.query(scope, PARAMETERS)
    worker = Worker.objects.filter(run__workspace=workspace, name=name).first()
    if worker is None:
        raise http.HttpError(404, "No such worker", f"There is no worker `{name[:63]}` in {workspace.slug}.")
    return Asked(
        worker_id=worker.id,
        attempt=number_asked(params, "attempt", low=1),
        tail=number_asked(params, "tail", low=0),
        since=_since(params.get("since")),
        offset=number_asked(params, "offset", low=0),
        follow=_flag(params, "follow") and scope["method"] == "GET",
        head=scope["method"] == "HEAD",
    )


def number_asked(params: dict[str, str], name: str, *, low: int) -> int | None:
    value = params.get(name)
    if value is None:
        return None
    found = number_read(value, MOST)
    if found is None or found < low:
        raise http.HttpError(400, "Bad parameter", f"`{name}` must be a whole number from {low} to {MOST:,}.")
    return found


def _flag(params: dict[str, str], name: str) -> bool:
    value = params.get(name, "false")
    if value not in {"true", "false"}:
        raise http.HttpError(400, "Bad parameter", f"`{name}` must be true or false.")
    return value == "true"


def _since(value: str | None) -> datetime | None:
    """A time (RFC 3339) or a duration before now (`10m`)."""
    if value is None:
        return None
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration(value))
    except (ValueError, OverflowError):
        pass
    found = moment_read(value)
    if found is None:
        raise http.HttpError(
            400,
            "Bad parameter",
            "`since` must be a duration such as 10m, or a time with its zone such as 2026-01-31T12:00:00Z.",
        )
    return found


def _find(asked: Asked) -> tuple[Source | None, bool]:
    """The source, and whether the worker's run is over (then none will come)."""
    assignments = Assignment.objects.filter(worker_id=asked.worker_id).select_related("attempt__run")
    if asked.attempt is not None:
        assignments = assignments.filter(attempt__number=asked.attempt)
    assignment = assignments.order_by("-attempt__number").first()
    if assignment is None:
        run = Worker.objects.select_related("run").get(id=asked.worker_id).run
        over = run.state in RUN_ENDED or (asked.attempt is not None and asked.attempt <= run.attempt_no)
        return None, over
    return Source(str(assignment.id), assignment.attempt.number, _start(assignment, asked)), False


def _start(assignment: Assignment, asked: Asked) -> int:
    if asked.offset is not None:
        return log_first_offset(assignment.id, asked.offset)
    if asked.tail is not None:
        return log_tail_offset(assignment, min(asked.tail, MOST_LINES))
    return log_since_offset(assignment, asked.since) if asked.since else 0


def _read(assignment_id: str, position: int, tell_gap: bool) -> list[Piece]:
    return list(log_pieces(assignment_id, position, tell_gap=tell_gap))


def _at_gap(assignment_id: str, position: int) -> bool:
    """Whether the log goes on behind bytes that are no longer kept: a reader by offset asks again from there."""
    return log_first_offset(assignment_id, position) > position


def _over(assignment_id: str) -> bool:
    """Whether nothing more will come: asked before reading, so that nothing is missed in between.

    What a machine that went silent still holds arrives when it is back; nobody waits for that.
    """
    assignment = Assignment.objects.select_related("attempt", "machine").filter(id=assignment_id).first()
    if assignment is None or log_complete(assignment):
        return True
    ended = assignment.state in WORKER_ENDED and assignment.attempt.state == AttemptState.ENDED
    return ended and (assignment.log_final is None or assignment.machine.unreachable_at is not None)
