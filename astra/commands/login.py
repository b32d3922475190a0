"""`astra login`."""

import sys
from typing import Annotated

import typer

from astra.commands.options import examples


def login(
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="The console, or the address of a workspace's page."),
    ] = None,
    token: Annotated[
        str | None, typer.Option("--token", metavar="TOKEN", help="An API token; `-` reads it from stdin.")
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace", "-w", metavar="ORG/WORKSPACE", help="Used unless a command says another."
        ),
    ] = None,
) -> None:
    """Check a token and keep it for the commands that follow.

    What is not given is asked for. Make a token in the console under your workspace's API tokens.
    """
    from astra import config
    from astra.client import Client
    from astra.output import note, say

    path = config.config_path()
    saved = config.load(path)
    root, page_workspace = config.read_server(server or _ask("Console's address", "--server", saved.server))
    if config.is_unencrypted(root):
        note(f"Warning: {root} is not encrypted; the token can be read on its way.")
    chosen = config.read_workspace(
        workspace
        or page_workspace
        or _ask("Workspace (organization/workspace)", "--workspace", saved.workspace)
    )
    piped = token == "-"  # noqa: S105 - the sign for standard input
    secret = sys.stdin.readline() if piped else token or _ask("API token", "--token", hidden=True)
    target = config.Target(root, config.read_token(secret), chosen)
    with Client(target) as client:
        next(client.runs(limit=1), None)
    config.save(config.Saved(root, target.token, chosen), path)
    say(f"Signed in to {root}, workspace {chosen}. Kept in {path}.")


def _ask(what: str, option: str, default: str = "", *, hidden: bool = False) -> str:
    from astra.errors import UsageError

    if not sys.stdin.isatty():
        raise UsageError(f"{what} is missing: there is no terminal to ask on. Use {option}.")
    return str(typer.prompt(what, default=default or None, hide_input=hidden, err=True))


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "astra login",
            "astra login --server https://console.example.com/o/acme/w/vision",
            "astra login --server https://console.example.com -w acme/vision --token - < token.txt",
        )
    )(login)
