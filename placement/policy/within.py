"""Asking the engine so that its answer keeps quotas: those of now, those of a later moment, and what is promised."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from placement.arrays import Bools
from placement.outcome import Placement, Refusal
from placement.place import fits, place, place_on
from placement.policy.jobs import Job
from placement.policy.promises import NOTHING, Keeps, Promise
from placement.policy.quotas import Ledger
from placement.policy.stays import Stays
from placement.request import Request
from placement.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Within:
    """The engine's answer within all quotas."""

    request: Request
    """As it was really asked in the end."""
    outcome: Placement | Refusal
    kept: dict[str, int]
    """Pools that are closed only because what quotas leave there is kept: for the job of that key."""


def place_within(
    ledger: Ledger, job: Job, snapshot: Snapshot, request: Request, keeps: Keeps = NOTHING
) -> Within:
    """Asks the engine until its answer keeps all quotas: a gang over several pools may pass one as a whole only.

    `request`: the job's, as `ledger.closed` gives it at least.
    """
    kept: dict[str, int] = {}
    request = keeps.closed(job, request, kept)
    while True:
        outcome = place(snapshot, request)
        if isinstance(outcome, Refusal):
            return Within(request, outcome, kept)
        stricter = ledger.broken(job, request, outcome) or keeps.broken(job, request, outcome, kept)
        if stricter is None:
            return Within(request, outcome, kept)
        request = stricter


class Later:
    """The wish of a job for a later moment: quotas as they are when those have ended that have by then."""

    def __init__(
        self, job: Job, request: Request, ledger: Ledger, stays: Stays, promises: Sequence[Promise]
    ) -> None:
        """`request`: the job's at present. `promises`: what was promised before, to be there at every moment."""
        self._job, self._request = job, request
        self._ledger, self._stays, self._promises = ledger, stays, promises
        self._known: dict[int, tuple[Ledger, Request]] = {}

    def asked(self, ended: Bools) -> Request:
        return self._at(ended)[1]

    def fits(self, cluster: Snapshot, ended: Bools) -> bool:
        ledger, request = self._at(ended)
        if not fits(cluster, request):
            return False
        return ledger.has_room_for_all(self._job, request) or isinstance(
            place_within(ledger, self._job, cluster, request).outcome, Placement
        )

    def place(self, cluster: Snapshot, ended: Bools, keep: frozenset[str]) -> Placement:
        ledger, request = self._at(ended)
        kept = place_on(cluster, request, keep) if keep else None
        if kept and ledger.broken(self._job, request, kept) is None:
            return kept
        answer = place_within(ledger, self._job, cluster, request).outcome
        assert isinstance(answer, Placement)  # noqa: S101  (`fits` has said so)
        return answer

    def ledger_at(self, ended: Bools) -> Ledger:
        """What is used then, what was promised before included."""
        return self._at(ended)[0]

    def _at(self, ended: Bools) -> tuple[Ledger, Request]:
        # Later moments have ended what earlier ones have: their number tells them apart.
        number = int(ended.sum())
        if number not in self._known:
            ledger = self._ledger.later(self._stays.gone(ended))
            for promise in self._promises:
                ledger.use(promise.job, promise.held)
            asked = ledger.closed(self._job)
            self._known[number] = (
                ledger,
                replace(asked, reserved=self._request.reserved, occupied=self._request.occupied),
            )
        return self._known[number]
