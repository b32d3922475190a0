"""`show`, `why` and `events`: one run, looked at."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from astra.commands.options import Output, RunName, Workspace, connect, examples

if TYPE_CHECKING:
    from astra.client import Client

RunOrWorker = Annotated[
    str, typer.Argument(metavar="RUN_OR_WORKER", help="The name of a run or of one of its workers.")
]
OfWorker = Annotated[
    str | None, typer.Argument(metavar="[WORKER]", help="One worker of the run, by its name or rank.")
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="As it was judged then: 14:03, 2026-03-01 14:03 (your time) or 2026-03-01T14:03:07Z.",
    ),
]


def show(run: RunName, output: Output = None, workspace: Workspace = None) -> None:
    """Show a run: its state and why, its network, its workers and their machines."""
    from astra.describe import run_description
    from astra.output import emit, say

    with connect(workspace) as client:
        found = client.run_get(run)
    if output:
        emit(found, output)
    else:
        say("\n".join(run_description(found)))


def why(
    name: RunOrWorker,
    worker: OfWorker = None,
    at: At = None,
    output: Output = None,
    workspace: Workspace = None,
) -> None:
    """Explain why a run or a worker is not running yet, machine by machine, and what would start it.

    Of a run that is placed: why it landed where it did.
    """
    from astra.explanation import explanation_lines
    from astra.output import Format, emit, say
    from astra.typed import read_time

    time = read_time(at).isoformat() if at else None
    with connect(workspace) as client:
        if worker is None:
            explanation = _explanation(client, name, time)
        else:
            explanation = client.worker_explanation(_worker_of(name, worker), time)
    if output is Format.NAME:
        say(name)
    elif output:
        emit(explanation, output)
    else:
        say("\n".join(explanation_lines(explanation)))


def _worker_of(run: str, worker: str) -> str:
    """A worker by its name, or by its rank in a run of one group."""
    return f"{run}-{worker}" if worker.isascii() and worker.isdigit() else worker


def _explanation(client: "Client", name: str, at: str | None) -> Any:
    """Runs and workers share one namespace, so at most one of the two is found."""
    from astra.errors import NotFoundError

    try:
        return client.run_explanation(name, at)
    except NotFoundError as error:
        try:
            return client.worker_explanation(name, at)
        except NotFoundError:
            raise error from None


def events(run: RunName, output: Output = None, workspace: Workspace = None) -> None:
    """Tell a run's history, oldest first: every move of the run and of its workers."""
    from astra.describe import event_lines
    from astra.output import emit, say

    with connect(workspace) as client:
        found = list(client.run_events(run))
    if output:
        emit({"items": found}, output)
    elif found:
        say("\n".join(event_lines(found)))


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "astra astraeus show ddp-resnet50",
            "astra astraeus show ddp-resnet50 -o json | jq .status.network",
        )
    )(show)
    app.command(
        epilog=examples(
            "astra astraeus why ddp-resnet50",
            "astra astraeus why ddp-resnet50-1",
            "astra astraeus why ddp-resnet50 --at 09:30",
        )
    )(why)
    app.command(epilog=examples("astra astraeus events ddp-resnet50"))(events)
