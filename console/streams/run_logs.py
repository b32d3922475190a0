"""`GET …/runs/<run>/logs`: the logs of all workers of one attempt as one text, streamed."""

import re

from console.streams import http
from console.streams.database import in_thread
from console.streams.logs import number_asked, place_asked, rights_asked
from console.streams.who import Rights
from runs.log_lines import log_sources
from runs.merged_log import MergedLog
from runs.models import Run

PATH = re.compile(r"^/api/v1/o/([-\w]+)/w/([-\w]+)/runs/([^/]+)/logs$")
PARAMETERS = ("attempt",)
NO_LONGER = b"[The log goes on, but you may not read it any more.]\n"


async def app(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
    try:
        log = await in_thread(_asked, scope)
        await http.begin(
            send,
            200,
            "text/plain; charset=utf-8",
            x_accel_buffering="no",
            x_content_type_options="nosniff",
        )
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
        else:
            await http.until_gone(receive, _stream(log, rights_asked(scope, PATH), send))
    except http.HttpError as error:
        await http.answer_error(send, error)


async def _stream(log: MergedLog, rights: Rights, send: http.Send) -> None:
    """The next part is read when the client has taken the one before."""
    while await rights.last():
        part = await in_thread(log.read)
        await send({"type": "http.response.body", "body": part or b"", "more_body": part is not None})
        if part is None:
            return
    await send({"type": "http.response.body", "body": NO_LONGER})


def _asked(scope: http.Scope) -> MergedLog:
    workspace, name = place_asked(scope, PATH)
    attempt = number_asked(http.query(scope, PARAMETERS), "attempt", low=1)
    run = Run.objects.of(workspace).filter(name=name).first()
    if run is None:
        raise http.HttpError(404, "No such run", f"There is no run `{name[:63]}` in {workspace.slug}.")
    return MergedLog(log_sources(run, attempt=attempt))
