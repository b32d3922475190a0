"""`validate`: the server's rules and messages, offline."""

from typing import Annotated

import typer

from astra.commands.options import examples


def validate(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Run documents, JSON; `-` reads stdin.")
    ],
) -> None:
    """Check run documents without a server: every mistake with its place and what to do."""
    from astra import documents
    from astra.errors import InvalidDocumentError
    from astra.output import note, say

    wrong = 0
    for file in files:
        try:
            documents.load(file)
        except InvalidDocumentError as error:
            wrong += 1
            for line in error.lines():
                note(line if len(files) == 1 else f"{file}: {line}")
        else:
            say(f"{file} is valid")
    if wrong:
        raise typer.Exit(InvalidDocumentError.exit_code)


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("astra astraeus validate run.json"))(validate)
