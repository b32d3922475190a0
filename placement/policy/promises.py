"""What quotas leave at the moment for which a job was promised room, kept for it: later jobs take no part of it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from placement.outcome import Placement
from placement.policy.jobs import Job
from placement.policy.quotas import Ledger
from placement.policy.stays import Cell
from placement.request import Request


@dataclass(frozen=True, slots=True)
class Promise:
    """Room in quotas that a reservation counts on."""

    job: Job
    held: Counter[Cell]
    """What it will use."""
    at: float | None
    """When it can start at the latest; None: a holder has no time limit."""
    ledger: Ledger
    """What will be used then, this job and those that are placed meanwhile included."""
    claimed: frozenset[int]
    """Jobs whose claims are in the ledger: when they are placed they use nothing more."""

    def leaves_enough(self, job: Job) -> bool:
        """Whether the job may have all that it wants, wherever it is placed."""
        return job.gpus <= self.ledger.room_in_each(job)


@dataclass(frozen=True, slots=True)
class Keeps:
    """The promises that a job would still be in the way of at their moments."""

    promises: Sequence[Promise] = ()

    def closed(self, job: Job, request: Request, kept: dict[str, int]) -> Request:
        """The request with the pools closed in which a promise leaves the job no room; these are noted in `kept`."""
        for promise in self.promises:
            request = _closing(request, *promise.ledger.closed_to(job), promise, kept)
        return request

    def broken(
        self, job: Job, request: Request, placement: Placement, kept: dict[str, int]
    ) -> Request | None:
        """As `Ledger.broken`, for what is promised."""
        for promise in self.promises:
            then = promise.ledger.broken(job, request, placement)
            if then is not None:
                return _closing(request, then.over_cap, then.guaranteed_to_others, promise, kept)
        return None

    def kept_by(self, job: Job, request: Request, placement: Placement) -> bool:
        """Whether the job leaves them what they count on."""
        return self.broken(job, request, placement, {}) is None


NOTHING = Keeps()


def _closing(
    request: Request, over: frozenset[str], lent: frozenset[str], promise: Promise, kept: dict[str, int]
) -> Request:
    new = (over | lent) - request.over_cap - request.guaranteed_to_others
    if not new:
        return request
    kept.update(dict.fromkeys(new, promise.job.key))
    return replace(
        request,
        over_cap=request.over_cap | (over & new),
        guaranteed_to_others=request.guaranteed_to_others | (lent & new),
    )


class Promises:
    """Those of one cycle, in the order in which they were made."""

    def __init__(self, now: float) -> None:
        self.made: list[Promise] = []
        self._now = now
        self._taken = 0
        """GPUs of all jobs that were placed since."""
        self._spared: dict[tuple[int, bool], float] = {}
        """By workspace and whether its job is preemptible: all promises leave it so much, less what is taken since."""

    def before(self, job: Job, *, after: float = 0.0) -> Keeps:
        """Those that the job could be in the way of, if it starts in so many seconds."""
        if not self.made or self._leave_enough(job):
            return NOTHING
        return Keeps(tuple(each for each in self._lasting(job, after) if not each.leaves_enough(job)))

    def _leave_enough(self, job: Job) -> bool:
        """Cheap, for the many of which no promise has to fear anything. No job takes more room than it has GPUs."""
        kind = job.workspace, job.preemptible
        if job.gpus > self._spared.get(kind, 0.0) - self._taken:
            room = min(each.ledger.room_in_each(job) for each in self.made)
            self._spared[kind] = room + self._taken
        return job.gpus <= self._spared[kind] - self._taken

    def make(self, promise: Promise) -> None:
        self._spared.clear()
        for each in self.made:
            # Who starts before another is there when that one starts, unless it surely has ended by then.
            if promise.at is not None and _outlasts(promise.job, promise.at, each):
                each.ledger.use(promise.job, promise.held)
        promise.ledger.use(promise.job, promise.held)
        self.made.append(promise)

    def took(self, job: Job, held: Counter[Cell], *, after: float = 0.0) -> None:
        """The job uses this from so many seconds on."""
        self._taken += sum(held.values())
        for each in self._lasting(job, after):
            if job.key not in each.claimed:
                each.ledger.use(job, held)

    def _lasting(self, job: Job, after: float) -> Iterator[Promise]:
        return (each for each in self.made if _outlasts(job, self._now + after, each))


def _outlasts(job: Job, start: float, promise: Promise) -> bool:
    """Whether the job, started then, is there at the promise's moment; one without a moment is outlasted by all."""
    if job.key == promise.job.key:
        return False
    if promise.at is None:
        return True
    return start < promise.at and (job.limit_seconds is None or start + job.limit_seconds > promise.at)
