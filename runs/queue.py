"""What ends when a run leaves the queue, by being placed or withdrawn."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import connection

NOT_QUEUED: dict[str, Any] = {
    "wait_kind": "",
    "queue_position": None,
    "judged": None,
    "explanation": None,
    "set_aside": "",
}
"""The run's own columns about its wait, for whoever moves it."""
ANEW: dict[str, Any] = {
    **NOT_QUEUED,
    "patient_since": None,
    "voids": 0,
    "voids_of_any_kind": 0,
    "void_kind": "",
}
"""The same for a wait that begins anew: whatever was found out before counts no more."""

_LEAVE = """
WITH claimed AS (DELETE FROM runs_claim WHERE run_id = ANY(%(runs)s)),
    kept AS (DELETE FROM runs_reservation WHERE run_id = ANY(%(runs)s))
UPDATE runs_runwait SET until = %(now)s WHERE run_id = ANY(%(runs)s) AND until IS NULL
"""
"""One round trip: it lies on the way of every start."""


def runs_leave_queue(run_ids: Sequence[int], now: datetime) -> None:
    """What was claimed and reserved for them is open to all again, and their history of waiting has an end."""
    with connection.cursor() as cursor:
        cursor.execute(_LEAVE, {"runs": list(run_ids), "now": now})
