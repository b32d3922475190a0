"""The database's clock: deadlines are compared by one clock, whichever process compares them."""

import threading
import time
from datetime import datetime, timedelta

from django.db import connection

ANCHOR_SECONDS = 10
"""How long this machine's own clock carries the time on after the database was asked."""


class _Anchor(threading.local):
    """The database's time at a moment of this machine's boot clock, which nobody sets."""

    database: datetime | None = None
    at: float = 0.0


_anchor = _Anchor()


def database_now() -> datetime:
    """Now, by the database, also inside a long transaction. Asks it every ten seconds: a decision takes several."""
    boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    if _anchor.database is None or boot - _anchor.at > ANCHOR_SECONDS:
        _anchor.database, _anchor.at = _ask(), boot
    return _anchor.database + timedelta(seconds=boot - _anchor.at)


def _ask() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    now: datetime = row[0]
    return now
