"""Times in sentences."""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from functools import lru_cache

from placement.phrases import TOLD_IN_FULL, and_list
from runs.reasons import SOMEBODY_S_RUN

HELD_BY_OTHERS = "another workspace"
"""Who holds what one may not see: neither named nor counted."""


def moment_words(at: datetime, now: datetime) -> str:
    """ "14:05 UTC"; with the day where that is not today."""
    return moment_on(today_of(now), at)


def today_of(now: datetime) -> date:
    return now.astimezone(UTC).date()


@lru_cache(maxsize=1 << 14)
def moment_on(today: date, at: datetime) -> str:
    """`moment_words` for one who words many."""
    # An explanation tells when each of thousands of runs ends, and hours later still the same of most.
    at = at.astimezone(UTC)
    day = "" if at.date() == today else f" on {at.day} {at:%b}"
    return f"{at.hour:02}:{at.minute:02} UTC{day}"


def names_words(names: Iterable[str]) -> str:
    """Runs in a sentence, those that one may not see last and told once."""
    told = dict.fromkeys(names)
    others = [SOMEBODY_S_RUN] if told.pop(SOMEBODY_S_RUN, 0) is None else []
    shown = [*told, *others]
    if len(shown) > TOLD_IN_FULL:
        return f"{shown[0]}, {shown[1]} and others"
    return and_list(shown)


def moment_read(text: str) -> datetime | None:
    """A time as RFC 3339 writes it, with its zone; None for anything else."""
    try:
        # An address turns a "+" that was not escaped into a space.
        at = datetime.fromisoformat(re.sub(r" (\d\d:\d\d)$", r"+\1", text))
        return at.astimezone(UTC) if at.tzinfo else None
    except (ValueError, OverflowError):
        return None
