"""The form of a document, and the document of a form. What one has not changed stays as it was, to the letter."""

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from console.pages.run_form.entries import Entry, Values, faithful
from console.pages.run_form.kinds import NotShown
from console.pages.run_form.places import JSON, Blocked, reachable, value_at
from console.pages.run_form.rows import ROWS, Rows
from console.pages.run_form.table import ENTRIES
from wire.spec.errors import Location, format_path

_GROUPS: Final[Location] = ("spec", "worker_groups")
_TEMPLATE: Final[Location] = ("spec", "task_template")
_OPENED: Final[frozenset[Location]] = frozenset(
    place[:n] for entry in ENTRIES.values() for place in entry.places for n in range(len(place))
)
"""Objects whose fields are looked at one by one."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Something in the document that the form doesn't show."""

    path: str
    words: str


@dataclass(frozen=True, slots=True)
class Form:
    """What the form holds. An entry that can't show what the document says is not part of it."""

    values: Mapping[str, Values]
    """Entry → its inputs."""
    rows: Mapping[str, Mapping[int, Mapping[str, str]]]
    """Name of a list → index in it → row."""
    hidden: tuple[Hidden, ...]


def form_of(document: Any) -> Form:
    """The form that shows a document, whatever is wrong with it."""
    grouped = _grouped(document)
    values: dict[str, Values] = {}
    for name, entry in ENTRIES.items():
        if (shown := _shown(entry, document, grouped=grouped)) is not None:
            values[name] = shown
    rows = {each.name: each.shown(document) for each in ROWS if _has_rows(each, document, grouped=grouped)}
    return Form(values, rows, tuple(_hidden(document, values, rows)))


def _grouped(document: Any) -> bool:
    """It has several groups of workers, of which the form shows none."""
    return bool(value_at(document, _GROUPS))


def _shown(entry: Entry, document: Any, *, grouped: bool) -> Values | None:
    if grouped and entry.places[0][:2] == _TEMPLATE:
        return None
    if not all(reachable(document, place) for place in entry.places):
        return None
    try:
        values = entry.show(document)
    except NotShown:
        return None
    return values if faithful(entry, values, document) else None


def _has_rows(rows: Rows, document: Any, *, grouped: bool) -> bool:
    items = value_at(document, rows.place)
    return not grouped and reachable(document, rows.place) and (isinstance(items, list) or not items)


def _hidden(
    document: Any, values: Mapping[str, Values], rows: Mapping[str, Mapping[int, Any]]
) -> Iterator[Hidden]:
    covered = {place for name in values for place in ENTRIES[name].places}
    lists = {each.place: rows[each.name] for each in ROWS if each.name in rows}
    for place, value in _leaves(document, ()):
        path = format_path(place)
        short = path.removeprefix("spec.task_template.").removeprefix("spec.")
        if place in lists:
            yield from (
                Hidden(f"{path}[{index}]", f"{short}[{index}]")
                for index in range(len(value))
                if index not in lists[place]
            )
        elif place not in covered:
            count = f" ({len(value)})" if isinstance(value, list | dict) else ""
            yield Hidden(path, f"{short}{count}")


def _leaves(value: Any, place: Location) -> Iterator[tuple[Location, Any]]:
    """Fields with a value; objects that say nothing have none."""
    if value is None or value == {}:
        return
    if place in _OPENED and isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*place, key))
    else:
        yield place, value


@dataclass(frozen=True, slots=True)
class Applied:
    """A document with what was changed in its form."""

    document: Any
    changed: bool
    problems: Mapping[str, str]
    """Entry → why what was typed there can't be read. The document has there what it had before."""


def form_apply(document: Any, post: Values) -> Applied:
    """`post` holds the inputs of `form_of(document)` as they were sent back."""
    form = form_of(document)
    after = copy.deepcopy(document)
    problems = {}
    for name, shown in form.values.items():
        entry = ENTRIES[name]
        if any(f"f-{each}" in post for each in (*entry.inputs(), f"{name}-there")):
            sent = {each: _lines(post.get(f"f-{each}", ())) for each in entry.inputs()}
            if not _same_values(entry, sent, shown) and (problem := _written(entry, after, sent)):
                problems[name] = problem
    for rows in ROWS:
        if rows.name in form.rows and f"{rows.name}-0-of" in post:
            rows.write(after, post)
    return Applied(after, after != document, problems)


def _lines(sent: Any) -> list[str]:
    return [text.replace("\r\n", "\n") for text in sent]


def _same_values(entry: Entry, sent: Values, shown: Values) -> bool:
    """Nothing and an empty text are the same to an input."""
    return all(
        [text for text in sent.get(name, ()) if text] == [text for text in shown.get(name, ()) if text]
        for name in entry.inputs()
    )


def _written(entry: Entry, document: JSON, values: Values) -> str:
    """What is wrong with the values; empty where they are written."""
    trial = copy.deepcopy({"metadata": document.get("metadata"), "spec": document.get("spec")})
    try:
        entry.write(trial, values)
    except ValueError as error:
        return str(error)
    except Blocked:
        return "The document can't hold this here. Edit it as JSON."
    entry.write(document, values)
    return ""


def entry_at(path: str) -> str:
    """The entry or list that an error with this path is about; empty where the form has none."""
    places = {format_path(place): name for name, entry in ENTRIES.items() for place in entry.places}
    places |= {format_path(rows.place): rows.name for rows in ROWS}
    places |= {format_path((*_TEMPLATE, "requested_resources", "per_gpu")): "amounts"}
    places |= {format_path((*_TEMPLATE, "requested_resources", "gpu_requests")): "gpus"}
    around = (each for each in places if path == each or path.startswith((f"{each}.", f"{each}[")))
    return places.get(max(around, default="", key=len), "")


@dataclass(frozen=True, slots=True)
class Spots:
    """Where in the form errors stand."""

    numbers: Mapping[str, Mapping[int, int]]
    """List → index in it → number of its row."""

    def of(self, path: str) -> str:
        """The cell of a list's row, or the entry, that an error with this path is about; empty where there is none."""
        rows = next((each for each in ROWS if path.startswith(f"{format_path(each.place)}[")), None)
        if rows is not None:
            index, _, field = path.removeprefix(f"{format_path(rows.place)}[").partition("]")
            number = self.numbers.get(rows.name, {}).get(int(index)) if index.isdecimal() else None
            if number is not None:
                return f"{rows.name}-{number}-{rows.column_of(re.split(r'[.[]', field[1:])[0]).key}"
        return entry_at(path)


def spots_of(form: Form, post: Values | None = None) -> Spots:
    """In the form as it is drawn; `post`: in the one that was sent, whose document `form` now shows."""
    numbers = {}
    for rows in ROWS:
        shown = form.rows.get(rows.name, {})
        sent = range(len(shown)) if post is None else rows.numbers(post)
        numbers[rows.name] = dict(zip(shown, sent, strict=False))
    return Spots(numbers)


def summary(form: Form, entries: tuple[Entry, ...], most: int = 4) -> str:
    """What differs from the defaults, in a few words."""
    said = [ENTRIES[each.name].said(form.values[each.name]) for each in entries if each.name in form.values]
    words = [each for each in said if each]
    more = [f"{len(words) - most} more"] if len(words) > most else []
    return ", ".join(words[:most] + more)
