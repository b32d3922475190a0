"""Order: the run's number in the queue, who goes first, and what is reserved for whom."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from placement.phrases import TOLD_IN_FULL, and_list, capitalized, shortened
from runs.explaining.moments import HELD_BY_OTHERS, moment_words
from runs.models import Reservation, Run
from runs.reasons import SOMEBODY_S_RUN
from runs.scheduling.records import Recalled, Reserved

Data = dict[str, Any]

SHOWN = 20
"""Runs that go first told one by one."""
FIRST_AFTER_ONE = 2
OF_ITS_RUN = "another worker of this run"
"""Of those that start on their own one goes before the other."""


def queue_of(run: Run, recalled: Recalled | None, now: datetime) -> Data | None:
    """{"position", "text", "ahead", "reservation"}; None while no pass has given it a number."""
    if run.queue_position is None:
        return None
    ahead = _ahead(run)
    blocking = first_in_the_way(recalled)
    return {
        "position": run.queue_position,
        "text": _text(run, ahead, blocking, now),
        "ahead": [
            {
                "run": each.name if each.workspace_id == run.workspace_id else HELD_BY_OTHERS,
                "priority": each.priority if each.workspace_id == run.workspace_id else None,
                "position": each.queue_position,
            }
            for each in ahead
        ],
        "reservation": _own_reservation(run, recalled),
    }


def _ahead(run: Run) -> list[Run]:
    """Those that the last pass judged before it, first to be judged first."""
    waiting = Run.objects.waiting().filter(cluster=run.cluster_id, queue_position__lt=run.queue_position)
    told = waiting.only("name", "workspace", "parent", "priority", "queue_position")
    return list(told.order_by("queue_position")[:SHOWN])


def _name(other: Run, run: Run) -> str:
    if other.parent_id is not None and other.parent_id == run.parent_id:
        return OF_ITS_RUN
    return other.name if other.workspace_id == run.workspace_id else SOMEBODY_S_RUN


def first_in_the_way(recalled: Recalled | None) -> Reserved | None:
    """The first reservation that closes machines to this run."""
    if recalled is None:
        return None
    closed = recalled.request.reserved
    return next((each for each in recalled.reserved if each.machines & closed), None)


def _text(run: Run, ahead: Sequence[Run], blocking: Reserved | None, now: datetime) -> str:
    if blocking is not None and (other := Run.objects.filter(id=blocking.run_id).first()):
        return f"{first_words(run, other, blocking, now)} This run is number {run.queue_position:,}."
    number = run.queue_position or 0
    if not ahead:
        return f"Nothing goes first: number {number:,} in the queue."
    if number == FIRST_AFTER_ONE:
        return (
            f"Number {number:,} in the queue; {_name(ahead[0], run)} goes first and keeps no machine from it."
        )
    return f"Number {number:,} in the queue; the {number - 1:,} runs that go first keep no machine from it."


def first_words(run: Run, other: Run, reserved: Reserved, now: datetime) -> str:
    """ "llm-8 goes first (priority 10) and is to get gpu-01 and gpu-02 14:05 UTC at the latest." """
    name = _name(other, run)
    who = capitalized(name) if name in {SOMEBODY_S_RUN, OF_ITS_RUN} else name
    shown = other.priority != run.priority and name != SOMEBODY_S_RUN
    priority = f" (priority {other.priority})" if shown else ""
    machines = sorted(reserved.machines)
    which = and_list(machines) if len(machines) <= TOLD_IN_FULL else shortened(machines)
    when = ""
    if reserved.at is not None:
        when = f", at {moment_words(datetime.fromtimestamp(reserved.at, UTC), now)} at the latest"
    return f"{who} goes first{priority} and is to get {which}{when}."


def _own_reservation(run: Run, recalled: Recalled | None) -> Data | None:
    made = Reservation.objects.filter(run=run.id).first()
    if made is None:
        return None
    names: list[str] = []
    if recalled is not None:
        topology = recalled.snapshot.topology
        names = [topology.names[row] for row in np.flatnonzero(np.isin(topology.ids, made.machines)).tolist()]
    return {
        "machines": sorted(names),
        "at": made.starts_at,
    }
