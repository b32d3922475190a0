"""`logs`: of a worker, byte for byte; of a run, all its workers' lines with their names."""

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from astra.commands.options import Workspace, connect, examples

if TYPE_CHECKING:
    from astra.client import Client
    from astra.logs import Wanted

RunOrWorker = Annotated[
    str, typer.Argument(metavar="WORKER_OR_RUN", help="A worker's name, or a run's for all workers.")
]


def logs(
    name: RunOrWorker,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the worker has ended.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="N", help="Only the last N lines.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Only newer lines: 10m, 14:03, or 2026-03-01T14:00:00Z."
        ),
    ] = None,
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", min=1, metavar="N", help="Of this attempt; otherwise of the newest."),
    ] = None,
    workspace: Workspace = None,
) -> None:
    """Print a worker's log, or those of all workers of a run.

    In a pipe the bytes are those that the worker wrote. On a terminal, sequences that could steer it
    are left out; colours stay.
    """
    from astra.errors import NotFoundError
    from astra.logs import Wanted

    wanted = Wanted(tail, _since(since), attempt, follow)
    with connect(workspace) as client:
        try:
            write_worker(client, name, wanted)
        except NotFoundError as error:
            write_merged(client, _run(client, name, error), wanted)


def _run(client: "Client", name: str, worker_error: Exception) -> Any:
    from astra.errors import NotFoundError

    try:
        return client.run_get(name)
    except NotFoundError:
        raise worker_error from None


def _since(text: str | None) -> str | None:
    """A duration, counted back by the server's clock; or a time, sent with its zone."""
    from astra.typed import read_quantity, read_time
    from wire.quantities import parse_duration

    if text is None:
        return None
    if ":" in text or re.match(r"\d{4}-", text):
        return read_time(text).isoformat()
    return f"{read_quantity(parse_duration, text, '--since')}s"


def write_worker(client: "Client", worker: str, wanted: "Wanted") -> None:
    from astra.logs import WorkerLog

    write = _writer()
    try:
        for data in WorkerLog(client, worker, wanted).read():
            write(data)
    finally:
        write(None)


def write_merged(client: "Client", run: Any, wanted: "Wanted | None" = None) -> None:
    """Follows unless told otherwise."""
    from astra.logs import Wanted
    from astra.merged import read_run

    writers: dict[str, Callable[[bytes | None], None]] = {}
    try:
        for worker, data in read_run(client, run, wanted or Wanted(follow=True)):
            # A filter for each worker: an unfinished sequence of one must not swallow another's line.
            writers.setdefault(worker, _writer())(data)
    finally:
        for write in writers.values():
            write(None)


def _writer() -> Callable[[bytes | None], None]:
    """Writes bytes as they are to a pipe and made safe to a terminal; None says that they are all."""
    from astra.output import is_terminal
    from astra.terminal import LogFilter

    raw = sys.stdout.buffer

    def write_raw(data: bytes | None) -> None:
        if data:
            raw.write(data)
            raw.flush()

    if not is_terminal():
        return write_raw
    log = LogFilter()

    def write_safe(data: bytes | None) -> None:
        sys.stdout.write(log.finish() if data is None else log.feed(data))
        sys.stdout.flush()

    return write_safe


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "astra astraeus logs ddp-resnet50-0 | tail -n 400 | grep -E 'NET/IB|all_reduce|throughput'",
            "astra astraeus logs -f --tail 100 ddp-resnet50-0",
            "astra astraeus logs -f ddp-resnet50",
        )
    )(logs)
