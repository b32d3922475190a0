"""`token`: the workspace's API tokens, for its admins."""

from typing import Annotated, Any

import typer

from astra.commands.options import Output, Workspace, connect, examples
from astra.states import WorkspaceRole

tokens = typer.Typer(
    help="The workspace's API tokens; for its admins.",
    epilog=examples("astra astraeus token create ci --role editor --expires 90d"),
    no_args_is_help=True,
    rich_markup_mode=None,
)


@tokens.command("list", epilog=examples("astra astraeus token list"))
def list_(output: Output = None, workspace: Workspace = None) -> None:
    """List the workspace's tokens, newest first; revoked ones too."""
    from astra.describe import token_lines
    from astra.output import Format, emit, say

    with connect(workspace) as client:
        found = list(client.tokens())
    if output is Format.NAME:
        say("\n".join(str(token["id"]) for token in found))
    elif output:
        emit({"items": found}, output)
    else:
        say("\n".join(token_lines(found)))


@tokens.command(
    epilog=examples(
        "astra astraeus token create ci --role editor --expires 90d",
        "astra astraeus token create watcher --role viewer > watcher.token",
    )
)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")],
    role: Annotated[
        WorkspaceRole, typer.Option("--role", case_sensitive=False, help="What it may do: not more than you.")
    ] = WorkspaceRole.VIEWER,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="DURATION", help="Not valid after so long: 90d.")
    ] = None,
    workspace: Workspace = None,
) -> None:
    """Make a token. It is printed this once, alone on standard output."""
    from astra.output import note, say, word

    order = {"name": name, "role": role.value, "expires_at": _expiry(expires)}
    with connect(workspace) as client:
        made = client.token_create(order)
    note(f"Token {word(made, 'id')} ({word(made, 'name')}) is shown this once:")
    say(word(made, "secret"))


def _expiry(after: str | None) -> str | None:
    from datetime import UTC, datetime, timedelta

    from astra.errors import UsageError
    from astra.typed import read_quantity
    from wire.quantities import parse_duration

    if after is None:
        return None
    seconds = read_quantity(parse_duration, after, "--expires")
    try:
        return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        raise UsageError(f"--expires: {after} is longer than any calendar.") from None


@tokens.command(epilog=examples("astra astraeus token revoke 12"))
def revoke(
    number: Annotated[int, typer.Argument(metavar="ID", help="As `token list` shows it.", min=1)],
    workspace: Workspace = None,
) -> None:
    """Revoke a token at once."""
    from astra.output import say, word

    with connect(workspace) as client:
        answer: Any = client.token_revoke(number)
    say(f"token {word(answer, 'id')} revoked")


def register(app: typer.Typer) -> None:
    app.add_typer(tokens, name="token")
