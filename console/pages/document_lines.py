"""Where in a document's text the things are that its errors are about."""

import json
import re
from dataclasses import dataclass

from common.errors import FieldError
from wire.spec.errors import Location, format_path
from wire.spec.tree import MAX_DEPTH, MAX_VALUES

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+)', re.DOTALL)
_LINE_IN_MESSAGE = re.compile(r"\bline (\d+)")
_LAST_STEP = re.compile(r"(\.[^.\[\]]+|\[[^\[\]]*\]|^[^.\[\]]+)$")
_LONGEST_EXCERPT = 120


@dataclass(frozen=True, slots=True)
class PlacedError:
    """An error, its line (1 is the first) and what stands there."""

    path: str
    message: str
    line: int
    excerpt: str


def errors_place(text: str, errors: tuple[FieldError, ...]) -> list[PlacedError]:
    """The errors in the order of their lines. A missing field's line is that of what it is missing in."""
    lines = text.splitlines() or [""]
    places = _lines_by_path(text)
    placed = [_place(error, lines, places) for error in errors]
    return sorted(placed, key=lambda each: each.line)


def _place(error: FieldError, lines: list[str], places: dict[str, int]) -> PlacedError:
    found = _LINE_IN_MESSAGE.search(error.message) if error.code == "not_json" else None
    line = int(found[1]) if found else _nearest(error.path, places)
    line = min(max(line, 1), len(lines))
    return PlacedError(error.path, error.message, line, lines[line - 1].strip()[:_LONGEST_EXCERPT])


def _nearest(path: str, places: dict[str, int]) -> int:
    while path and path not in places:
        shorter = _LAST_STEP.sub("", path)
        if shorter == path:
            break
        path = shorter
    return places.get(path, 1)


def _lines_by_path(text: str) -> dict[str, int]:
    """The line of every key and list item of a JSON text. Of a broken text: as far as it can be read."""
    return _Scan(text).places


class _Scan:
    """Walks the tokens with a stack of locations: no recursion, so that depth can't exhaust Python's."""

    def __init__(self, text: str) -> None:
        self.places: dict[str, int] = {}
        self.stack: list[str | int | None] = []
        """For each open object the key it is at (None before the first), for each list the index."""
        self.lists: list[bool] = []
        self.expect_key = False
        position, line = 0, 1
        while match := _TOKEN.match(text, position):
            line += text.count("\n", position, match.start(1))
            self._take(match[1], line)
            line += text.count("\n", match.start(1), match.end())
            position = match.end()

    def _take(self, lexeme: str, line: int) -> None:
        if lexeme in "}]":
            self._close()
        elif lexeme == ",":
            self._next()
        elif lexeme == ":":
            self.expect_key = False
        elif self.expect_key and lexeme.startswith('"'):
            self.stack[-1] = _plain(lexeme)
            self._note(line)
        else:
            self._value(lexeme, line)

    def _value(self, lexeme: str, line: int) -> None:
        if self.lists and self.lists[-1]:
            self._note(line)
        if lexeme in "{[":
            self.lists.append(lexeme == "[")
            self.stack.append(0 if lexeme == "[" else None)
            self.expect_key = lexeme == "{"

    def _next(self) -> None:
        if not self.lists:
            return
        step = self.stack[-1]
        if self.lists[-1] and isinstance(step, int):
            self.stack[-1] = step + 1
        self.expect_key = not self.lists[-1]

    def _close(self) -> None:
        if self.lists:
            self.lists.pop()
            self.stack.pop()
        self.expect_key = False

    def _note(self, line: int) -> None:
        # Beyond these limits the document is refused as a whole; hostile text must not cost seconds here.
        if len(self.stack) > MAX_DEPTH or len(self.places) > MAX_VALUES:
            return
        location: Location = tuple(step for step in self.stack if step is not None)
        self.places.setdefault(format_path(location), line)


def _plain(lexeme: str) -> str:
    """A key as it is meant; one with escapes that don't hold stays as it stands."""
    try:
        return str(json.loads(lexeme))
    except json.JSONDecodeError:
        return lexeme[1:-1]
