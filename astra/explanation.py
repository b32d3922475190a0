"""The words of an explanation: the same data as the page, in the page's order.

The server words every sentence; here they are only laid out. Parts that an answer lacks are left out, and an
item is a sentence or an object with one, so that a newer server's extra fields don't hide what is known.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from astra.output import get, show_time, table, word
from wire.quantities import format_duration

_TEXT_FIELDS = ("text", "message", "reason", "headline")
_RESULT_FIELDS = ("result", "placement", "then")
NAMES_SHOWN = 8
"""Of machines about which the same is said; the rest are counted."""


def explanation_lines(explanation: Any) -> list[str]:
    lines = [sentence(explanation) or "There is no explanation yet; the next pass gives one within seconds."]
    lines += _as_of(explanation)
    lines += _section("", _causes(get(explanation, "causes")))
    lines += _section("What would start it now", _changes(get(explanation, "changes")))
    lines += _section("When", _indented([_when(get(explanation, "when"))]))
    lines += _section("Domains", _domains(get(explanation, "domains")))
    lines += _section("Machines", _machines(get(explanation, "machines")))
    lines += _section("History", _history(get(explanation, "history")))
    return lines


def sentence(item: Any) -> str:
    """The sentence of an item that is one, or that has one in a field."""
    if isinstance(item, str):
        return word({"text": item}, "text")
    for name in ("headline", *_TEXT_FIELDS):
        value = get(item, name)
        if isinstance(value, Mapping):
            return sentence(value)
        if value:
            return word(item, name)
    return ""


def _as_of(explanation: Any) -> list[str]:
    number = word(explanation, "pass") or word(explanation, "pass_number")
    at = show_time(get(explanation, "at") or get(explanation, "computed_at"))
    if not number and not at:
        return []
    return ["As of " + ", ".join(part for part in (f"pass {number}" if number else "", at) if part)]


def _causes(causes: Any) -> list[str]:
    rows = [
        ("ok" if get(cause, "met") else "no", word(cause, "kind").capitalize(), sentence(cause))
        for cause in _items(causes)
    ]
    return table(rows, [4, 9]) if rows else []


def _changes(changes: Any) -> list[str]:
    rows = []
    for change in _items(changes):
        results = (sentence(get(change, name)) for name in _RESULT_FIELDS)
        result = next((text for text in results if text), "")
        rows.append((f"  {sentence(change)}", f"-> {result}" if result else ""))
    return table(rows) if rows else []


def _when(when: Any) -> str:
    return sentence(when) or show_time(get(when, "at"))


def _history(history: Any) -> list[str]:
    """Since when, for how long, why; oldest first."""
    rows = []
    for stretch in _items(history):
        seconds = get(stretch, "seconds")
        lasted = format_duration(seconds) if isinstance(seconds, int | float) else ""
        rows.append(
            (f"  {show_time(get(stretch, 'since'))}", lasted, word(stretch, "kind"), sentence(stretch))
        )
    return table(rows) if rows else []


def _domains(domains: Any) -> list[str]:
    rows = []
    for domain in _items(domains):
        if not word(domain, "name"):  # the whole cluster: the headline says it
            continue
        found, needed = word(domain, "found"), word(domain, "needed")
        counted = f"{found} of {needed} found" if found and needed else ""
        rows.append(
            (f"  {word(domain, 'name')}", ": ".join(part for part in (counted, sentence(domain)) if part))
        )
    return table(rows) if rows else []


def _machines(machines: Any) -> list[str]:
    """Grouped by main cause, nearest first, as the server orders them."""
    lines: list[str] = []
    for group, rows in groupby(_machine_rows(machines), key=lambda row: row[0]):
        members = list(rows)
        count = sum(len(names) for _, names, _ in members)
        cells = [(f"    {_names_shown(names)}", text) for _, names, text in members]
        lines += ([f"  {group} ({count})"] if group else []) + table(cells)
    return lines


def _machine_rows(machines: Any) -> list[tuple[str, list[str], str]]:
    """(group, names, text): a row names one machine, or in `machines` all those about which the same is said."""
    rows = []
    for item in _items(machines):
        group = word(item, "group") or word(item, "title") or word(item, "cause")
        names = [sentence(name) for name in _items(get(item, "machines"))] or [word(item, "name")]
        rows.append((group, names, _all_causes(item)))
    return rows


def _names_shown(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _all_causes(machine: Any) -> str:
    causes = [sentence(cause) for cause in _items(get(machine, "causes"))]
    return "; ".join(cause for cause in causes if cause) or sentence(machine)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines if line]


def _section(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    return ["", title, *lines] if title else ["", *lines]
