"""Sizes and durations as people write and read them.

Sizes: `100G` = `100Gi` = `100GiB` = 100 x 1024³ bytes; `100GB` = 100 x 1000³.
Durations: `1h30m`, `90s`, `2d`. Both are whole bytes and whole seconds inside.
"""

import re
from decimal import Decimal

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
MILLI = 1000
"""Thousandths in one: placement counts cores in them."""

_PREFIXES = "KMGTP"
_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,9})?"
_SIZE = re.compile(rf"({_NUMBER})\s*(?:([KMGTP])(I?B?))?(B?)", re.IGNORECASE | re.ASCII)
_DURATION_PART = re.compile(rf"({_NUMBER})\s*(days?|d|hours?|h|minutes?|min|m|seconds?|sec|s)\s*", re.ASCII)
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION_WORDS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_LARGEST = 2**63 - 1
_WHOLE_FROM = 100  # three digits say enough: 8.1 GiB, 812 GiB


class QuantityError(ValueError):
    """Text that is no size or duration; the message shows how one is written."""


def parse_size(text: str) -> int:
    """Bytes. Raises QuantityError, also for fractions of a byte."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise QuantityError(
            f"{_quoted(text)} is not a size. Write a number and a unit, such as 100G, 1.5T or 512M."
        )
    number, prefix, rest, _ = match.groups()
    size = Decimal(number) * _size_factor(prefix, rest)
    if size != int(size) or size > _LARGEST:
        raise QuantityError(f"{_quoted(text)} is not a whole number of bytes that a machine can count.")
    return int(size)


def _size_factor(prefix: str | None, rest: str | None) -> int:
    if prefix is None:
        return 1
    base = 1000 if (rest or "").upper() == "B" else 1024
    return int(base ** (_PREFIXES.index(prefix.upper()) + 1))


def parse_duration(text: str) -> int:
    """Seconds. Raises QuantityError; a bare number is refused because Slurm's would be minutes."""
    stripped = text.strip().lower()
    seconds, end = Decimal(0), 0
    units: list[str] = []
    while match := _DURATION_PART.match(stripped, end):
        units.append(match[2][0])
        seconds += Decimal(match[1]) * _SECONDS[units[-1]]
        end = match.end()
    if not units or end != len(stripped):
        raise QuantityError(_not_a_duration(text, stripped))
    if sorted(set(units), key="dhms".index) != units:
        raise QuantityError(f"{_quoted(text)} names a unit twice or out of order. Write it as 1d2h30m.")
    if seconds != int(seconds) or seconds > _LARGEST:
        raise QuantityError(f"{_quoted(text)} is not a whole number of seconds that a machine can count.")
    return int(seconds)


def _not_a_duration(text: str, stripped: str) -> str:
    if re.fullmatch(_NUMBER, stripped, re.ASCII):
        return f"{_quoted(text)} has no unit. Write {stripped}s, {stripped}m or {stripped}h."
    return f"{_quoted(text)} is not a duration. Write numbers with units, such as 1h30m, 45s or 2d."


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")  # noqa: PLR2004 - long enough to recognize it


def format_size(size: int) -> str:
    """`800 GiB`, `8.1 GiB`, `512 B`: the largest binary unit that leaves at least 1."""
    if size < 0:
        return f"-{format_size(-size)}"
    value, unit = float(size), "B"
    for name in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        # 1023.96 would be written "1024.0": the next unit says it better.
        if round(value, 1) < KIB:
            break
        value, unit = value / KIB, name
    whole = value == int(value) or value >= _WHOLE_FROM
    return f"{value:.0f} {unit}" if whole else f"{value:.1f} {unit}".replace(".0 ", " ")


def format_duration(seconds: float) -> str:
    """`1 h`, `10 min`, `41 s`, `1 h 30 min`: at most two neighbouring units, the rest cut off."""
    whole = int(abs(seconds))
    parts: list[str] = []
    for size, word in _DURATION_WORDS:
        count, whole = divmod(whole, size)
        if parts or count:
            parts.append(f"{count} {word}" if count else "")
    shown = " ".join(part for part in parts[:2] if part) or "0 s"
    return f"-{shown}" if seconds <= -1 else shown
