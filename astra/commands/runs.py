"""`runs`: the list."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from astra.commands.options import Output, Workspace, connect, examples
from astra.states import RunState

if TYPE_CHECKING:
    from astra.client import Client, Filters

Row = tuple[str, str, str, str]
WATCH_SECONDS = 2.0
WATCHED = 200
"""Newest runs that `--watch` looks at."""


def runs(
    state: Annotated[
        list[RunState] | None,
        typer.Option("--state", case_sensitive=False, help="Only runs in this state; may be repeated."),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="Only runs with it; may be repeated.")
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", "-q", metavar="TEXT", help="Only runs with this text.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="CLUSTER", help="Only runs there.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="At most so many, newest first.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on and show changes; Ctrl-C ends.")] = False,
    output: Output = None,
    workspace: Workspace = None,
) -> None:
    """List the workspace's runs, newest first."""
    from astra.errors import UsageError
    from astra.output import emit, is_terminal, run_lines, run_row, say

    if watch and output:
        raise UsageError("--watch and -o exclude each other.")
    asked: dict[str, str | list[str]] = {
        "state": ",".join(state or ()),
        "label": label or [],
        "q": query or "",
        "cluster": cluster or "",
    }
    filters = {name: value for name, value in asked.items() if value}
    with connect(workspace) as client:
        if watch:
            _watch(client, filters, limit or WATCHED, draw_in_place if is_terminal() else ChangedRows())
            return
        found = list(client.runs(limit, filters))
    if output:
        emit({"items": found}, output)
    else:
        say("\n".join(run_lines([run_row(run) for run in found])))


def _watch(client: "Client", filters: "Filters", limit: int, show: Callable[[list[Row]], None]) -> None:
    from astra.errors import UnreachableError
    from astra.output import run_row
    from astra.waiting import Patience

    patience = Patience()
    reached = False
    while True:
        try:
            rows = [run_row(run) for run in client.runs(limit, filters)]
        except UnreachableError as error:
            if not reached:
                raise
            patience.failed(error)
            continue
        patience.succeeded()
        reached = True
        show(rows)
        time.sleep(WATCH_SECONDS)


class ChangedRows:
    """For pipes and files: every row once, and again whenever it has changed."""

    def __init__(self) -> None:
        self._shown: dict[str, Row] | None = None

    def __call__(self, rows: list[Row]) -> None:
        from astra.output import run_lines

        before = self._shown or {}
        changed = [row for row in rows if before.get(row[0]) != row]
        lines = run_lines(changed)[0 if self._shown is None else 1 :]
        if lines:
            print("\n".join(lines), flush=True)
        self._shown = {row[0]: row for row in rows}


def draw_in_place(rows: list[Row]) -> None:
    """For terminals: the table from the top, cut to the screen."""
    import shutil

    from astra.output import RUN_HEADS, RUN_WIDTHS, column_widths, run_lines

    size = shutil.get_terminal_size()
    shown = rows[: max(size.lines - 2, 1)]
    for_reason = max(size.columns - sum(column_widths([RUN_HEADS, *shown], RUN_WIDTHS)), 10)
    cut = [(*row[:3], row[3][:for_reason]) for row in shown]
    more = f"\n… {len(rows) - len(cut)} more" if len(cut) < len(rows) else ""
    print("\x1b[H\x1b[J" + "\n".join(run_lines(cut)) + more, flush=True)


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "astra astraeus runs",
            "astra astraeus runs --state Running --label project=fabric-check",
            "astra astraeus runs --state Failed -o name | xargs astra astraeus delete",
        )
    )(runs)
