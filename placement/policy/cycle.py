"""One pass over the jobs that wait. The order in which a job is judged:

1. **Policy** (`quotas.py`): pools in which the workspace has no room are closed to it.
2. **Order** (`reserve.py`): machines reserved for those before it are closed, unless it is out of the way in time.
3. **Fit** (`placement.place`): the engine, on the cluster less what preemptions have freed for others.
4. **Patience**: a better network that the empty cluster could give is waited for.
5. When it does not fit: is it policy, order, fit, or never? Only a job that waits for room preempts
   (`preempt.py`) or, when it is the first of its kind, has machines reserved.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from placement.ever import Impossible, possible_ever
from placement.future import Departures, Earliest
from placement.holdings import Hold, Holding
from placement.outcome import Placement, Refusal
from placement.place import fits, fits_unreserved, place
from placement.policy.jobs import Decision, Job, Memory, Patient, Placed, Refused, Reserved, Running, Shares
from placement.policy.order import Order
from placement.policy.promises import NOTHING, Promise, Promises
from placement.policy.quotas import Ledger, Pledge, pools_of
from placement.policy.reserve import STOPPING_SECONDS, Reservations
from placement.policy.stays import Owners, Stays
from placement.policy.victims import Victims
from placement.policy.within import Later, place_within
from placement.preempt import Preemption, preempt
from placement.request import Request
from placement.snapshot import Snapshot

MOST_PREEMPTIONS = 32
"""Jobs per pass for which victims are looked for: each look asks the engine many times."""


class Cycle:
    """The cluster as this pass sees it: what it places or promises is closed to the jobs that come after."""

    def __init__(
        self,
        snapshot: Snapshot,
        jobs: Iterable[Job],
        running: Iterable[Running],
        shares: Shares,
        usage: Mapping[int, float],
        now: float,
        memory: Memory | None = None,
    ) -> None:
        """`usage`: decayed GPU-seconds by workspace."""
        self._now = now
        self._jobs = list(jobs)
        self._whole = snapshot
        self._taken: list[Hold] = []
        """By jobs that were placed since, not yet in `_whole`."""
        self._claims = {job.key: job.claims for job in self._jobs if job.claims}
        self._waiting = {job.key: job for job in self._jobs}
        self._open = self._less_claims()
        self._running = {run.holding.key: run for run in running}
        self._departures = Departures.of(snapshot.topology, [run.holding for run in self._running.values()])
        self._started: list[Holding] = []
        """By jobs that were placed since, not yet in `_departures`."""
        where = self._departures.where
        known = [self._running[each.key] for each in where.holdings]
        self._owners = Owners.of_runs(known)
        """Of the holdings in `_departures`, in their order."""
        self._ledger = Ledger(snapshot, known, shares, where)
        self._pledges: dict[int, Pledge] = {
            job.key: self._ledger.pledge(job, job.claims) for job in self._jobs if job.claims
        }
        self._order = Order(usage, _guaranteed(shares))
        self._reservations = Reservations(now)
        self._promises = Promises(now)
        self._memory = memory or Memory()
        self._occupied: dict[int, frozenset[str]] = {}
        """By family: the machines on which this cycle has placed a worker of it."""
        self._victims = Victims(known, self._ledger, now)
        self._preemptions_tried = 0

    @property
    def reserved(self) -> tuple[Reserved, ...]:
        """The reservations made so far."""
        return tuple(self._reservations.made)

    def order(self) -> Iterator[Job]:
        """The jobs, first to be judged first; sorted again after each `took`."""
        return self._order.run(self._jobs)

    def judge(self, job: Job) -> Decision:
        """What is to be done about the job now. Nothing changes but reservations, and claims of a preemption."""
        if pledge := self._pledges.pop(job.key, None):
            self._ledger.redeem(job, pledge)
            self._ledger.grant(pledge)
        try:
            return self._judge(job)
        finally:
            self._ledger.revoke()
            if claimed := self.claims_of(job):
                self._pledges[job.key] = self._ledger.pledge(job, claimed)

    def _judge(self, job: Job) -> Decision:
        snapshot = self.seen_by(job)
        behind = self._reservations.before(job)
        # What was freed for it stays its own, whoever goes first.
        reserved = self._reservations.machines_of(behind)
        if claimed := self.claims_of(job):
            reserved -= {hold.machine for hold in claimed}
        asked = self._ledger.closed(job, reserved=reserved, occupied=self._occupied_for(job))
        caps = {} if claimed else self._ledger.kept_from(job, self._now)
        keeps = NOTHING if claimed else self._promises.before(job)
        closed = replace(asked, over_cap=asked.over_cap | frozenset(caps)) if caps else asked
        found = place_within(self._ledger, job, snapshot, closed, keeps)
        request, outcome = found.request, found.outcome
        kept = found.kept | {pool: each.key for pool, each in caps.items()}
        behind = (*(key for key in behind if key not in kept.values()), *dict.fromkeys(kept.values()))
        if isinstance(outcome, Refusal) and kept and self._has_room(job, snapshot, asked):
            again = self._reserve_again(job, snapshot, request)
            return Refused("order", outcome, request, behind=behind, reserved=again, quota_kept=kept)
        if isinstance(outcome, Refusal):
            if claimed and not self._will_fit(job, request):
                self._give_up(job)
                return self._judge(job)
            return replace(self._refused(job, snapshot, request, outcome), behind=behind)
        # Who had others stopped doesn't leave their machines idle to wait for better ones.
        if not claimed and (patient := self._patient(job, snapshot, request, outcome)):
            return replace(patient, behind=behind)
        return Placed(outcome, request, behind)

    def took(self, job: Job, placement: Placement) -> None:
        """The job was placed so: what it holds is taken from those that come after."""
        claimed = self._claims.pop(job.key, ())
        if pledge := self._pledges.pop(job.key, None):
            self._ledger.redeem(job, pledge)
        holds = placement.holds
        self._taken += holds
        self._open = self._less_claims() if claimed else self._open.held(holds)
        held = self._ledger.held_by(job, holds)
        self._ledger.use(job, held)
        self._promises.took(job, held)
        self._order.charge(job)
        if job.family is not None:
            taken = frozenset(rank.machine_name for rank in placement.ranks)
            self._occupied[job.family] = self._occupied.get(job.family, frozenset()) | taken
        ends = None if job.limit_seconds is None else self._now + job.limit_seconds
        holding = Holding(job.key, holds, ends)
        self._started.append(holding)
        self._running[job.key] = Running(holding, job.workspace, job.priority, self._now, job.preemptible)

    def _occupied_for(self, job: Job) -> frozenset[str]:
        """Machines that hold a worker of the same run."""
        if job.family is None:
            return job.request.occupied
        return job.request.occupied | self._occupied.get(job.family, frozenset())

    def claims_of(self, job: Job) -> tuple[Hold, ...]:
        """What preemptions have freed for this job, or are freeing."""
        return self._claims.get(job.key, ())

    def seen_by(self, job: Job) -> Snapshot:
        """The cluster, less what preemptions have freed for others."""
        return self._less_claims(but=job.key) if job.key in self._claims else self._open

    def _less_claims(self, but: int | None = None) -> Snapshot:
        return self._less(self._with_claims(), but)

    def _with_claims(self) -> Snapshot:
        """The cluster, with what is claimed still free."""
        if self._taken:
            self._whole, self._taken = self._whole.held(self._taken), []
        return self._whole

    def _less(self, snapshot: Snapshot, but: int | None) -> Snapshot:
        """Without what is claimed for jobs other than this one."""
        others = [hold for key, holds in self._claims.items() if key != but for hold in holds]
        return snapshot.held(others) if others else snapshot

    def _patient(self, job: Job, snapshot: Snapshot, request: Request, found: Placement) -> Patient | None:
        since = self._now if job.patient_since is None else job.patient_since
        until = since + job.patience_seconds
        if self._now >= until:
            return None
        better = place(snapshot.emptied(repaired=False), request)
        if not isinstance(better, Placement) or better.network >= found.network:
            return None
        return Patient(found, better, until, request)

    # --- When it does not fit ---------------------------------------------------------------------------

    def _refused(self, job: Job, snapshot: Snapshot, request: Request, refusal: Refusal) -> Refused:
        if job.key in self._claims:
            reserved = self._reserve(job, snapshot, request)
            return Refused("fit", refusal, request, reserved=reserved, making_room=True)
        if impossible := self._impossible(job, snapshot):
            return Refused("never", refusal, request, impossible=impossible)
        if fits_unreserved(refusal):
            return Refused("order", refusal, request, reserved=self._reserve_again(job, snapshot, request))
        if self._policy_is_why(job, snapshot, request):
            # Of a cap its own workspace keeps the rest for it; what guarantees leave, every workspace could take.
            reserve = self._reserve_again if request.over_cap else self._reserve
            reserved = reserve(job, snapshot, request)
            if request.over_cap and reserved is None:
                self._ledger.keep(job, self._running.values(), self._now + STOPPING_SECONDS)
            return Refused("policy", refusal, request, reserved=reserved)
        return self._waits_for_room(job, snapshot, request, refusal)

    def _has_room(self, job: Job, snapshot: Snapshot, asked: Request) -> bool:
        """Whether it could start if nothing were kept for others."""
        return isinstance(place_within(self._ledger, job, snapshot, asked).outcome, Placement)

    def _policy_is_why(self, job: Job, snapshot: Snapshot, request: Request) -> bool:
        """Whether it would fit without quotas, now or (no pool is open at all) ever."""
        closed = request.over_cap | request.guaranteed_to_others
        if not closed:
            return False
        free = replace(job.request, reserved=request.reserved, occupied=request.occupied)
        pools = pools_of(request, snapshot.topology)
        return pools <= closed or fits(snapshot, free) or self._never(snapshot, request)

    def _never(self, snapshot: Snapshot, request: Request) -> bool:
        return not fits(snapshot.emptied(repaired=True), replace(request, reserved=frozenset()))

    def _impossible(self, job: Job, snapshot: Snapshot) -> Impossible | None:
        known = self._memory.ever.get(job.key)
        lasting = replace(
            job.request, occupied=frozenset()
        )  # where the others of its run are changes all the time
        if known and known[0] is snapshot.topology and known[1] == lasting:
            return known[2]
        answer = possible_ever(snapshot, lasting)
        impossible = answer if isinstance(answer, Impossible) else None
        self._memory.ever[job.key] = (snapshot.topology, lasting, impossible)
        return impossible

    def _waits_for_room(self, job: Job, snapshot: Snapshot, request: Request, refusal: Refusal) -> Refused:
        preemption = self._preempt(job, snapshot, request)
        reserved = self._reserve(job, snapshot, request)
        return Refused("fit", refusal, request, reserved=reserved, preemption=preemption)

    def _give_up(self, job: Job) -> None:
        """What was freed for it no longer helps: from here on it is judged as one that was granted nothing."""
        del self._claims[job.key]
        self._open = self._less_claims()
        self._ledger.revoke()

    def _will_fit(self, job: Job, request: Request) -> bool:
        """Whether there is room once all that is being stopped has ended."""
        leaving = [hold for run in self._running.values() if run.leaving for hold in run.holding.holds]
        return fits(self._less(self._with_claims().released(leaving), job.key), request)

    def _reserve(self, job: Job, snapshot: Snapshot, request: Request) -> Reserved | None:
        later: list[Later] = []

        def wish() -> tuple[Departures, Later]:
            departures = self._departures_for(job)
            stays = Stays(snapshot, departures.where, self._owners_of(departures))
            standing = [each for each in self._promises.made if each.job.key not in self._claims]
            later.append(Later(job, request, self._ledger, stays, standing))
            return departures, later[0]

        pools = self._ledger.may_ever_use(job)
        made = self._reservations.make(job, snapshot, pools, wish)
        if made is None:
            return None
        reserved, found = made
        self._promise(job, found, later[0])
        return reserved

    def _reserve_again(self, job: Job, snapshot: Snapshot, request: Request) -> Reserved | None:
        """What was promised to it stands, though it be policy or order that it waits for now."""
        return self._reserve(job, snapshot, request) if job.kept else None

    def _promise(self, job: Job, found: Earliest, later: Later) -> None:
        claimed = frozenset(self._claims) - {job.key}
        held = self._ledger.held_by(job, found.placement.holds)
        self._promises.make(Promise(job, held, found.at, later.ledger_at(found.ended), claimed))

    def _owners_of(self, departures: Departures) -> Owners:
        """Only those that are new are looked at: runs first, then what is claimed."""
        holdings, known = departures.where.holdings, len(self._owners.workspace)
        runs = [self._running[each.key] for each in holdings[known:] if each.key in self._running]
        self._owners = self._owners.plus(Owners.of_runs(runs))
        claiming = [self._waiting[each.key] for each in holdings[known + len(runs) :]]
        return self._owners.plus(Owners.of([(each.workspace, not each.preemptible) for each in claiming]))

    def _departures_for(self, job: Job) -> Departures:
        """What stands in the job's way, claims of others included: these last longer than who is being stopped."""
        self._departures, self._started = self._departures.plus(self._started), []
        soon = self._now + STOPPING_SECONDS
        claims = [
            Holding(key, holds, None if (limit := self._waiting[key].limit_seconds) is None else soon + limit)
            for key, holds in self._claims.items()
            if key != job.key
        ]
        leaving = {key for key, run in self._running.items() if run.leaving}
        return self._departures.ending(leaving, soon).plus(claims)

    def _preempt(self, job: Job, snapshot: Snapshot, request: Request) -> Preemption | None:
        """Whom to stop, and closes to others what that frees."""
        if self._preemptions_tried >= MOST_PREEMPTIONS or not self._victims.may_be_for(job):
            return None
        stoppable = self._victims.for_job(job)
        if not stoppable:
            return None
        self._preemptions_tried += 1
        # It starts only when they have ended: by then it may no longer be out of a reservation's way in time.
        behind = self._reservations.before(job, after=STOPPING_SECONDS)
        request = replace(request, reserved=self._reservations.machines_of(behind))
        found = preempt(snapshot, request, stoppable)
        if found is None or not self._may_use(job, request, found):
            return None
        for key in found.victims:
            self._ledger.leave(self._running[key])
            self._running[key] = replace(self._running[key], leaving=True)
        self._victims.stopped(found.victims)
        self._claims[job.key] = found.placement.holds
        self._open = self._less_claims()
        held = self._ledger.held_by(job, found.placement.holds)
        self._promises.took(job, held, after=STOPPING_SECONDS)
        return found

    def _may_use(self, job: Job, request: Request, found: Preemption) -> bool:
        """Whether quotas leave to the job what it would free, and it leaves to others what is promised to them."""
        if self._ledger.broken(job, request, found.placement) is not None:
            return False
        return self._promises.before(job, after=STOPPING_SECONDS).kept_by(job, request, found.placement)


def _guaranteed(shares: Shares) -> dict[int, int]:
    """GPUs guaranteed to each workspace, over all pools."""
    total: dict[int, int] = {}
    for (workspace, _), share in shares.items():
        total[workspace] = total.get(workspace, 0) + share.guaranteed
    return total
