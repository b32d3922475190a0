"""Names, sentences and logs come from others: nothing of them may steer the reader's terminal."""

import codecs
import re

# Characters that change the writing direction, or draw nothing and make two names look alike.
_HIDDEN = "\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
_CONTROLS = re.compile(rf"[\x00-\x1f\x7f-\x9f{_HIDDEN}]")

_LONGEST_STRING = 4096
_ESCAPE = re.compile(
    r"(?P<colour>\x1b\[[0-9;:]*m)"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # other control sequences: cursor, erase, modes
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # strings: titles, clipboard, links, device control
    r"|\x1b[ -/]*[0-Z\\^-~]"  # the two-character ones: reset, charset, save cursor
)
# An escape sequence of which the rest is still on its way.
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)\Z")
_DANGEROUS = re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f{_HIDDEN}]")
RESET = "\x1b[0m"


def clean(text: object) -> str:
    """One line of ordinary characters: escape sequences, controls and bidi marks are gone."""
    without = _ESCAPE.sub("", str(text).replace("\r\n", " ").replace("\n", " ").replace("\t", " "))
    return _CONTROLS.sub("", without)


def is_dangerous(text: str) -> bool:
    return _CONTROLS.search(text.replace("\n", "").replace("\t", "")) is not None


def escape_json(text: str) -> str:
    r"""JSON text with the characters that could steer a terminal written as `\uXXXX`: the same data."""
    return re.sub(rf"[\x7f-\x9f{_HIDDEN}]", lambda match: f"\\u{ord(match[0]):04x}", text)


class LogFilter:
    """Bytes of a log in, text that is safe on a terminal out: colours stay, all else that steers goes.

    Sequences and characters may be cut anywhere between two calls of `feed`.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._rest = ""
        self._coloured = False

    def feed(self, data: bytes) -> str:
        text = self._rest + self._decode(data)
        unfinished = _UNFINISHED.search(text)
        self._rest = ""
        # A "string" that never ends would hold the log back for ever.
        if unfinished and len(text) - unfinished.start() <= _LONGEST_STRING:
            self._rest = text[unfinished.start() :]
            text = text[: unfinished.start()]
        return self._safe(text)

    def finish(self) -> str:
        """What is to be written after the last byte: the terminal gets its own colours back."""
        text = self._safe(self._decode(b"", True))
        self._rest = ""
        return text + (RESET if self._coloured else "")

    def _safe(self, text: str) -> str:
        kept = _ESCAPE.sub(self._colour_or_nothing, text)
        # What is left of ESC belongs to no sequence that is known, unless it begins a colour.
        return re.sub(r"\x1b(?!\[[0-9;:]*m)", "", _DANGEROUS.sub("", kept))

    def _colour_or_nothing(self, match: re.Match[str]) -> str:
        colour = match["colour"] or ""
        if colour:
            self._coloured = colour not in {RESET, "\x1b[m"}
        return colour
