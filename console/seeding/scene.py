"""The whole scene, step by step."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from django.db import connection, transaction

from common.clock import database_now
from console.seeding.busy import Names, busy_make, finished_make
from console.seeding.fleet import fleet_make
from console.seeding.people import house_make
from console.seeding.queue import queue_make
from machines.services import SEEN_KEPT_SECONDS, machines_seen


@dataclass(frozen=True, slots=True)
class Scale:
    machines: int
    waiting: int
    finished: int


def scene_make(cluster: str, scale: Scale, seed: int, say: Callable[[str], None]) -> None:
    """Fills an empty cluster. The same seed gives the same scene, less its moments. Raises Conflict.

    Its machines count as heard from for the next hour: no agent stands behind them.
    """
    random, now = Random(seed), database_now()  # noqa: S311 - a fixed sequence is the point
    names = Names(random)
    with transaction.atomic():
        house = house_make(cluster)
        stands = fleet_make(house, scale.machines, random, now)
        say(f"{scale.machines} machines")
        for done in finished_make(house, stands, scale.finished, names, random, now):
            say(f"{done} of {scale.finished} finished runs")
        say(f"{busy_make(house, stands, names, random, now)} runs that hold machines")
    heard = (stand.machine.id for stand in stands if stand.machine.unreachable_at is None)
    machines_seen(heard, time.time() + SEEN_KEPT_SECONDS)
    _tables_tidy()
    say(f"{queue_make(house, stands, scale.waiting, names, random, now)} runs that wait")
    _tables_tidy()


def _tables_tidy() -> None:
    """As autovacuum leaves them after a while: plans are made for what is there, indexes answer alone."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
