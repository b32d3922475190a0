"""What people type into options: amounts and times."""

from collections.abc import Callable
from datetime import datetime
from datetime import time as time_of_day

from astra.errors import UsageError
from astra.terminal import clean
from wire.quantities import QuantityError


def read_quantity(parse: Callable[[str], int], text: str, option: str) -> int:
    """`parse`: of `wire.quantities`, such as `parse_duration`. Raises UsageError, which names the option."""
    try:
        return parse(text)
    except QuantityError as error:
        raise UsageError(f"{option}: {error}") from None


def read_time(text: str, now: datetime | None = None) -> datetime:
    """RFC 3339, or in the reader's own zone a date with a time; a time alone is one of today. Raises UsageError."""
    moment = now or datetime.now().astimezone()
    try:
        if "-" in text[:5]:
            return datetime.fromisoformat(text).astimezone()
        clock = time_of_day.fromisoformat(text)
        zone = clock.tzinfo or moment.tzinfo
        return datetime.combine(moment.astimezone(zone).date(), clock, zone)
    except (ValueError, OverflowError):
        told = clean(text)[:40]
        raise UsageError(
            f"“{told}” is not a time. Write 14:03, 2026-03-01 14:03, or 2026-03-01T14:03:07Z."
        ) from None
