"""Everything that is printed: to people as tables and sentences, to programs as JSON, YAML or names."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from astra.terminal import RESET, clean, escape_json, is_dangerous
from wire.quantities import format_duration


class Format(StrEnum):
    """What `-o` takes."""

    JSON = "json"
    YAML = "yaml"
    NAME = "name"


RUN_HEADS = ("NAME", "CLUSTER", "STATE", "REASON")
RUN_WIDTHS = (30, 14, 12)
"""The least widths of the table of runs."""

_COLOURS = {
    "Pending": "33", "Starting": "36", "Placed": "36", "Preparing": "36", "Ready": "36", "Running": "34",
    "Stopping": "35", "Succeeded": "32", "Failed": "31", "Lost": "31", "Stopped": "90",
}  # fmt: skip


def say(text: str = "") -> None:
    """A line to stdout."""
    print(text)


def note(text: str) -> None:
    """A line to stderr: progress and warnings never end up in a pipe."""
    print(text, file=sys.stderr, flush=True)


def prepare_streams() -> None:
    """A terminal that can't show a character shows an escape instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def is_terminal() -> bool:
    return sys.stdout.isatty()


def has_colours() -> bool:
    return is_terminal() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def coloured(state: str, text: str) -> str:
    colour = _COLOURS.get(state)
    return f"\x1b[{colour}m{text}{RESET}" if colour and has_colours() else text


def get(data: Any, *path: str) -> Any:
    """`data[path[0]][path[1]]…`, or None where one is missing: answers may leave fields out."""
    for name in path:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def word(data: Any, *path: str) -> str:
    """The same as clean text; "" where it is missing."""
    value = get(data, *path)
    return "" if value is None else clean(value)


def run_name(run: Any) -> str:
    return word(run, "metadata", "name")


def run_row(run: Any) -> tuple[str, str, str, str]:
    """(name, cluster, state, reason) of a run, as the table shows them."""
    cluster = word(run, "status", "cluster") or word(run, "spec", "cluster")
    return run_name(run), cluster, word(run, "status", "state"), word(run, "status", "reason")


def run_lines(rows: Sequence[tuple[str, str, str, str]]) -> list[str]:
    """The table NAME CLUSTER STATE REASON; a column grows when what it holds is longer."""
    return table([RUN_HEADS, *rows], RUN_WIDTHS, state_column=2)


def column_widths(rows: Sequence[Sequence[str]], least: Sequence[int] = ()) -> list[int]:
    """Of all columns but the last."""
    return [
        max([len(row[i]) + 2 for row in rows] + [least[i] if i < len(least) else 0])
        for i in range(len(rows[0]) - 1)
    ]


def table(
    rows: Sequence[Sequence[str]], least: Sequence[int] = (), state_column: int | None = None
) -> list[str]:
    """Aligned lines; the last column is as long as it is, two spaces stand between columns."""
    widths = column_widths(rows, least)
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        if state_column is not None and state_column < len(cells):
            cells[state_column] = coloured(row[state_column], cells[state_column])
        lines.append(("".join(cells) + row[-1]).rstrip())
    return lines


def fields(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """`Label   value` lines; what has no value is left out."""
    present = [(label, value) for label, value in pairs if value]
    width = max((len(label) for label, _ in present), default=0) + 3
    return [f"{label.ljust(width)}{value}" for label, value in present]


def emit(data: Any, form: Format) -> None:
    """`data` is one object, or {"items": […]} for a list; names are those of metadata."""
    if form is Format.JSON:
        say(escape_json(json.dumps(data, indent=2, ensure_ascii=False)))
    elif form is Format.YAML:
        say(as_yaml(data).rstrip("\n"))
    else:
        items = data["items"] if isinstance(get(data, "items"), list) else [data]
        for item in items:
            say(run_name(item))


def as_yaml(data: Any) -> str:
    import yaml

    plain = not is_dangerous(json.dumps(data, ensure_ascii=False))
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=plain, width=110)


def parse_time(value: Any) -> datetime | None:
    """An RFC 3339 time of the API with its zone; None where there is none."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    return time if time.tzinfo else None


def show_time(value: Any, now: datetime | None = None) -> str:
    """`2026-03-01 14:03:07 (12 min ago)`, by the reader's clock and zone."""
    time = parse_time(value)
    if time is None:
        return "" if value is None else clean(value)
    age = ((now or datetime.now(time.tzinfo)) - time).total_seconds()
    distance = f"{format_duration(age)} ago" if age >= 0 else f"in {format_duration(-age)}"
    return f"{time.astimezone():%Y-%m-%d %H:%M:%S} ({distance})"
