"""Options and arguments that several commands share, and how a command gets its client."""

from typing import TYPE_CHECKING, Annotated

import typer

from astra.output import Format

if TYPE_CHECKING:
    from astra.client import Client

Workspace = Annotated[
    str | None,
    typer.Option(
        "--workspace", "-w", metavar="ORG/WORKSPACE", help="Instead of ASTRAEUS_WORKSPACE or the saved one."
    ),
]
Output = Annotated[
    Format | None,
    typer.Option("--output", "-o", case_sensitive=False, help="For programs instead of people."),
]
Cluster = Annotated[str, typer.Option("--cluster", metavar="CLUSTER", help="The machine's cluster.")]


def complete_run(incomplete: str) -> list[str]:
    """Names of runs for the shell's completion; nothing when the server can't be asked."""
    from astra.errors import AstraError

    try:
        with connect(None) as client:
            names = [run["metadata"]["name"] for run in client.runs(limit=200)]
    except (AstraError, KeyError, TypeError):
        return []
    return [name for name in names if name.startswith(incomplete)]


RunName = Annotated[str, typer.Argument(metavar="RUN", help="The run's name.", autocompletion=complete_run)]
RunNames = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="One run's name or several.", autocompletion=complete_run),
]
MachineName = Annotated[str, typer.Argument(metavar="MACHINE", help="The machine's name.")]


def examples(*lines: str) -> str:
    """An epilog that the help does not wrap."""
    return "\b\nExamples:\n" + "\n".join(f"  $ {line}" for line in lines)


def connect(workspace: str | None) -> "Client":
    from astra.client import Client
    from astra.config import resolve

    return Client(resolve(workspace))
