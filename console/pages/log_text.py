"""A log's bytes as plain lines for pages without JavaScript. static/js/ansi.js draws them in colour."""

import re
from dataclasses import dataclass

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
"""ANSI sequences: CSI, OSC (titles, links), DCS and the like, two-character ones."""
_ERROR_WORDS = (
    r"\b(traceback \(most recent|\w*error:|fatal|killed\b|cuda error|nccl warn|nccl error|segmentation fault)"
)
_ERROR = re.compile(_ERROR_WORDS, re.IGNORECASE)
ERROR_BYTES = re.compile(_ERROR_WORDS.encode(), re.IGNORECASE)
"""Finds the lines that report an error, in a log as it was written."""
_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_TAB = 0x09
_MARKS: dict[int, int | str] = {
    **{code: 0x2400 + code for code in range(0x20) if code != _TAB},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
    **{ord(character): f"⟨U+{ord(character):04X}⟩" for character in _BIDI},
}
LONGEST_LINE = 4000
"""Characters of one line that a page shows; the download has all of it."""


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    error: bool


def log_lines(data: bytes) -> list[Line]:
    """The lines of a piece of a log: sequences dropped, overwritten text folded, control characters as marks."""
    text = data.decode("utf-8", errors="replace")
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [_line(line) for line in lines]


def marked(text: str) -> str:
    """`text` with a mark for every character that no screen shows, or that turns the text around it."""
    return text.translate(_MARKS)


def _line(raw: str) -> Line:
    plain = marked(_ESCAPES.sub("", _last_state(raw)))
    return Line(plain[:LONGEST_LINE], bool(_ERROR.search(plain)))


def _last_state(raw: str) -> str:
    """What is left of a line whose text was overwritten after carriage returns."""
    return raw.rstrip("\r").rpartition("\r")[2]


@dataclass(frozen=True, slots=True)
class Coloured:
    """A line with its sequences, for static/js/ansi.js to draw."""

    text: str
    error: bool
    folded: int
    """States of the line before its last one: updates of a progress bar."""


def coloured(data: bytes) -> Coloured:
    raw = data.decode("utf-8", errors="replace")
    text = _last_state(raw)
    error = bool(_ERROR.search(_ESCAPES.sub("", text)))
    return Coloured(text[:LONGEST_LINE], error, raw.rstrip("\r").count("\r"))
