"""EASY backfill: machines kept for those that go first, and who may use them meanwhile."""

from collections.abc import Callable, Iterable

from placement.future import Departures, Earliest, Wish
from placement.policy.jobs import Job, Reserved
from placement.request import Request
from placement.snapshot import Snapshot

MOST_RESERVATIONS = 16
SPARED_SECONDS = 600.0
"""A run that was placed less long ago is not preempted."""
STOPPING_SECONDS = 30.0
"""What a preempted run takes to end, its grace included, as far as plans go."""


class Reservations:
    """Those of one cycle, in the order in which they were made."""

    def __init__(self, now: float) -> None:
        self.made: list[Reserved] = []
        self._now = now
        self._unions: dict[tuple[int, ...], frozenset[str]] = {}

    def before(self, job: Job, *, after: float = 0.0) -> tuple[int, ...]:
        """Jobs that go before this one, for which machines are kept that it may not use if it starts in so many
        seconds."""
        return tuple(each.key for each in self.made if not self._may_use(job, each, self._now + after))

    def machines_of(self, keys: tuple[int, ...]) -> frozenset[str]:
        """Names of the machines reserved for these jobs."""
        if keys not in self._unions:
            self._unions[keys] = _union(each.machines for each in self.made if each.key in keys)
        return self._unions[keys]

    def _may_use(self, job: Job, reserved: Reserved, start: float) -> bool:
        """Whether the job is surely out of the way in time: it ends before, or can be preempted by then."""
        if job.key == reserved.key:
            return True
        ends = float("inf") if job.limit_seconds is None else start + job.limit_seconds
        if reserved.at is not None and ends <= reserved.at:
            return True
        can_be_stopped = job.preemptible and job.priority < reserved.priority
        in_time = reserved.at is None or start + SPARED_SECONDS + STOPPING_SECONDS <= reserved.at
        return can_be_stopped and in_time

    def make(
        self,
        job: Job,
        snapshot: Snapshot,
        pools: frozenset[str],
        wish: Callable[[], tuple[Departures, Wish]],
    ) -> tuple[Reserved, Earliest] | None:
        """A reservation for a job that could not start, when it competes with none that has one.

        `pools`: those that it may ever use.
        """
        if len(self.made) >= MOST_RESERVATIONS:
            return None
        models = _models(job.request, snapshot)
        if any(_meet(pools, models, each) for each in self.made):
            return None
        departures, wished = wish()
        found = departures.earliest(snapshot, wished, keep=job.kept)
        if found is None:
            return None
        machines = frozenset(rank.machine_name for rank in found.placement.ranks)
        reserved = Reserved(
            job.key, job.priority, machines, found.at, found.waits_for, pools=pools, models=models
        )
        self.made.append(reserved)
        return reserved, found


def _models(request: Request, snapshot: Snapshot) -> frozenset[str]:
    """Models that the request may use, as far as it names them."""
    models = frozenset(snapshot.topology.models)
    if all(group.models for group in request.groups):
        models &= _union(group.models for group in request.groups)
    return models


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def _meet(pools: frozenset[str], models: frozenset[str], reserved: Reserved) -> bool:
    return bool(pools & reserved.pools) and bool(models & reserved.models)
