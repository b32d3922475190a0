"""`stop`, `restart` and `delete`."""

from collections.abc import Callable
from typing import Annotated

import typer

from astra.commands.options import RunNames, Workspace, connect, examples

NoWait = Annotated[bool, typer.Option("--no-wait", help="Return as soon as the server has taken the order.")]


def stop(
    names: RunNames,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has stopped.")] = False,
    workspace: Workspace = None,
) -> None:
    """Stop runs: their workers get the stop signal and their grace, then SIGKILL. Logs and history stay."""
    from astra.output import run_row, say
    from astra.states import RUN_ENDED
    from astra.waiting import wait_until_ended

    with connect(workspace) as client:

        def one(name: str) -> None:
            answer = client.run_stop(name)
            if wait:
                answer = wait_until_ended(client, name, lambda _: None)
            state = run_row(answer)[2]
            say(f"{name} {state.lower() if state in RUN_ENDED else 'stopping'}")

        _each(names, one)


def restart(names: RunNames, workspace: Workspace = None) -> None:
    """Put runs back into the queue as a new attempt; the logs of earlier attempts stay."""
    from astra.output import say

    with connect(workspace) as client:

        def one(name: str) -> None:
            client.run_restart(name)
            say(f"{name} restarted")

        _each(names, one)


def delete(names: RunNames, no_wait: NoWait = False, workspace: Workspace = None) -> None:
    """Stop runs and remove them with their logs and history, for good. Returns when they are gone."""
    from astra.output import say
    from astra.waiting import wait_until_gone

    with connect(workspace) as client:

        def one(name: str) -> None:
            client.run_delete(name)
            if no_wait:
                say(f"{name} is being deleted")
                return
            wait_until_gone(client, name)
            say(f"{name} deleted")

        _each(names, one)


def _each(names: list[str], act: Callable[[str], None]) -> None:
    """One that fails does not keep the others from it; the first failure becomes the exit code."""
    from astra.errors import AstraError, UnreachableError
    from astra.output import note

    first: AstraError | None = None
    for name in names:
        try:
            act(name)
        except UnreachableError:
            raise
        except AstraError as error:
            if len(names) == 1:
                raise
            note("\n".join(f"{name}: {line}" for line in error.lines()))
            first = first or error
    if first:
        raise typer.Exit(first.exit_code)


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("astra astraeus stop ddp-resnet50"))(stop)
    app.command(epilog=examples("astra astraeus restart ddp-resnet50"))(restart)
    app.command(
        epilog=examples("astra astraeus delete ddp-resnet50", "astra astraeus delete ddp-1 ddp-2 --no-wait")
    )(delete)
