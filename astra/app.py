"""The commands put together, and the one place where an error becomes lines and an exit code."""

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from astra import INTERRUPTED
from astra.commands import control, login, logs, machines, metrics, runs, show, submit, token, validate
from astra.errors import AstraError

BROKEN_PIPE = 141  # what a shell reports for a program that SIGPIPE ended


class Guarded(TyperGroup):
    """Runs a command so that people see sentences, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        from astra.output import prepare_streams

        prepare_streams()
        try:
            result = super().invoke(ctx)
            # Here, because a flush at the interpreter's exit could only complain.
            sys.stdout.flush()
        except AstraError as error:
            print("\n".join(error.lines()), file=sys.stderr)
            raise typer.Exit(error.exit_code) from None
        except typer.Abort:
            # Ctrl-C or the end of input while something was asked.
            print(file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _forget_stdout()
            raise typer.Exit(BROKEN_PIPE) from None
        return result


def _forget_stdout() -> None:
    """What is still buffered has no reader."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"astra {version('astraeus')}")
        except PackageNotFoundError:
            print("astra (from a source tree)")
        raise typer.Exit


# Plain help: rich would take longer to import than everything else together.
app = typer.Typer(
    cls=Guarded,
    name="astra",
    help="Runs training on your organization's GPU machines. Sign in once with `astra login`.",
    epilog="\b\nExamples:\n  $ astra login --server https://console.example.com\n  $ astra astraeus runs",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
astraeus = typer.Typer(
    help="Runs, their workers and logs; machines.",
    epilog="\b\nExamples:\n  $ astra astraeus submit run.json --follow\n  $ astra astraeus why ddp-resnet50",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


login.register(app)
for group in (submit, runs, show, logs, metrics, control, validate, machines, token):
    group.register(astraeus)
app.add_typer(astraeus, name="astraeus")
