"""How values stand in fields: as text that a browser gives back as it was, and read again without loss."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from console.pages.run_form.places import MISSING
from wire.quantities import GIB, KIB, MIB, TIB, parse_duration, parse_size

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,9})?")
_SIZES: Final = ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_DURATIONS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class NotShown(Exception):
    """A field can't show this value."""


@dataclass(frozen=True, slots=True)
class Kind:
    widget: str
    """The template's word for it."""
    show: Callable[[Any], str]
    """Raises NotShown."""
    read: Callable[[str], Any]
    """MISSING for an empty field. Raises ValueError with a sentence for people."""


def text_show(value: Any) -> str:
    """A line: browsers take line breaks out of one."""
    if not isinstance(value, str) or "\n" in value or "\r" in value:
        raise NotShown
    return value


def text_read(text: str) -> Any:
    return text.strip() or MISSING


def number_show(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotShown
    return str(value)


def number_read(text: str) -> Any:
    stripped = text.strip()
    if not stripped:
        return MISSING
    if not _WHOLE.fullmatch(stripped):
        raise ValueError(f"“{stripped[:40]}” is not a whole number. Write digits only, such as 16.")
    return int(stripped)


def size_show(value: Any) -> str:
    """`100 GiB`, exactly: the largest unit of which it is a whole number."""
    number = int(number_show(value))
    unit = next(((size, name) for size, name in _SIZES if number and number % size == 0), (1, "B"))
    return f"{number // unit[0]} {unit[1]}"


def size_read(text: str) -> Any:
    """Bytes; a number alone is GiB, as the field says."""
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped):
        return int(Decimal(stripped) * GIB)
    return parse_size(stripped) if stripped else MISSING


def duration_show(value: Any) -> str:
    """`1 h 30 min`, exactly: every unit that it needs."""
    rest = int(number_show(value))
    parts = []
    for size, unit in _DURATIONS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 s"


def duration_read(text: str) -> Any:
    return parse_duration(text) if text.strip() else MISSING


def command_show(words: Sequence[str]) -> str:
    """Executable and arguments as a shell writes them."""
    if any("\r" in word for word in words):  # browsers make a line break of it
        raise NotShown
    return shlex.join(words)


def command_read(text: str) -> list[str]:
    """Split as a shell does; nothing is expanded."""
    try:
        return shlex.split(text)
    except ValueError:
        raise ValueError("A quotation mark has no partner. Add the one that closes it.") from None


def names_show(value: Any) -> str:
    """A list of names, with commas."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise NotShown
    return text_show(", ".join(value))


def names_read(text: str) -> Any:
    return [name for name in re.split(r"[,\s]+", text) if name] or MISSING


def pairs_show(value: Any) -> str:
    """A line `KEY=value` each; a value that would not stand on a line as it is stands there as JSON text."""
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise NotShown
    if any(not key or re.search(r"[=\s#\"]", key) for key in value):
        raise NotShown
    return "\n".join(f"{key}={_line(text)}" for key, text in value.items())


def _line(text: str) -> str:
    """Also what a person would not see to be there."""
    plain = text.isprintable() and text == text.strip() and not text.startswith('"')
    return text if plain else json.dumps(text, ensure_ascii=True)


def pairs_read(text: str) -> Any:
    """Empty lines and lines that begin with # count for nothing, as in .env files."""
    pairs: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.strip().removeprefix("export ").partition("=")
        if not equals:
            raise ValueError(f"Line {number} has no “=”. Write NAME=value, one on each line.")
        pairs[key.strip()] = _value(value.strip(), number)
    return pairs or MISSING


def _value(text: str, number: int) -> str:
    if not text.startswith('"'):
        return text
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(
            f'Line {number}: the text in quotes is not complete. Close it with ", or leave out the first ".'
        ) from None
    return str(value)


TEXT = Kind("text", text_show, text_read)
NUMBER = Kind("number", number_show, number_read)
SIZE = Kind("size", size_show, size_read)
DURATION = Kind("duration", duration_show, duration_read)
CHOICE = Kind("choice", text_show, text_read)
NAMES = Kind("names", names_show, names_read)
PAIRS = Kind("pairs", pairs_show, pairs_read)
