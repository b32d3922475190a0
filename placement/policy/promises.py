"""What quotas leave at the moment for which a job was promised room, kept for it: later jobs take no part of it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from placement.holdings import Hold
from placement.outcome import Placement
from placement.policy.jobs import Job
from placement.policy.quotas import Ledger
from placement.request import Request


@dataclass(frozen=True, slots=True)
class Promise:
    """Room in quotas that a reservation counts on."""

    job: Job
    placement: Placement
    at: float | None
    """When it can start at the latest; None: a holder has no time limit."""
    ledger: Ledger
    """What will be used then, this job and those that are placed meanwhile included."""
    claimed: frozenset[int]
    """Jobs whose claims are in the ledger: when they are placed they use nothing more."""


@dataclass(frozen=True, slots=True)
class Keeps:
    """The promises that a job would still be in the way of at their moments."""

    promises: Sequence[Promise] = ()

    def closed(self, job: Job, request: Request, kept: dict[str, int]) -> Request:
        """The request with the pools closed in which a promise leaves the job no room; these are noted in `kept`."""
        for promise in self.promises:
            then = promise.ledger.closed(job)
            request = _closing(request, then.over_cap, then.guaranteed_to_others, promise, kept)
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

    def before(self, job: Job, *, after: float = 0.0) -> Keeps:
        """Those at whose moments the job is not surely over, if it starts in so many seconds."""
        return Keeps(tuple(self._lasting(job, after))) if self.made else NOTHING

    def make(self, promise: Promise) -> None:
        for each in self.made:
            # Who starts before another is there when that one starts, unless it surely has ended by then.
            if promise.at is not None and _outlasts(promise.job, promise.at, each):
                each.ledger.take(promise.job, promise.placement)
        promise.ledger.take(promise.job, promise.placement)
        self.made.append(promise)

    def took(self, job: Job, placement: Placement) -> None:
        for each in self._lasting(job, 0.0):
            if job.key not in each.claimed:
                each.ledger.take(job, placement)

    def claimed(self, job: Job, holds: Collection[Hold], *, after: float) -> None:
        """The job will hold this in so many seconds."""
        for each in self._lasting(job, after):
            each.ledger.pledge(job, holds)

    def _lasting(self, job: Job, after: float) -> Iterator[Promise]:
        return (each for each in self.made if _outlasts(job, self._now + after, each))


def _outlasts(job: Job, start: float, promise: Promise) -> bool:
    """Whether the job, started then, is there at the promise's moment; one without a moment is outlasted by all."""
    if job.key == promise.job.key:
        return False
    if promise.at is None:
        return True
    return start < promise.at and (job.limit_seconds is None or start + job.limit_seconds > promise.at)
