"""The policies that a simulation can follow: ours, and the two simple ones that it is compared with.

All three keep the same quotas and ask the same engine; they differ in who may start when.
"""

from benchmarks._simulation import Pass, Policy, View
from placement import Placement, Snapshot, place
from placement.policy import Cycle, Job, Memory, Patient, Placed, Refused
from placement.policy.quotas import Ledger


def ours() -> Policy:
    """Priority, fair share and time; reservations with backfill; preemption: `placement.policy.Cycle`."""
    memory = Memory()

    def decide(view: View) -> Pass:
        cycle = Cycle(view.snapshot, view.jobs, view.running, view.shares, view.usage, view.now, memory)
        decided = Pass(view.now)
        for job in cycle.order():
            decided.judged.append(job.key)
            _ours_one(cycle, job, decided)
        decided.reserved = cycle.reserved
        return decided

    return decide


def _ours_one(cycle: Cycle, job: Job, decided: Pass) -> None:
    match cycle.judge(job):
        case Placed(placement=placement):
            cycle.took(job, placement)
            decided.placed[job.key] = placement
        case Patient(until=until):
            decided.patient[job.key] = until
            decided.claims[job.key] = job.claims
        case Refused() as refused:
            decided.refused[job.key] = refused.kind
            if refused.preemption:
                decided.claims[job.key] = refused.preemption.placement.holds
                decided.stopped.update(dict.fromkeys(refused.preemption.victims, job.key))
            elif refused.making_room:
                decided.claims[job.key] = job.claims


def strict_fifo() -> Policy:
    """By submission; the first run that lacks room holds up all that came after it."""
    return _by_submission(strict=True)


def greedy() -> Policy:
    """By submission; whatever fits starts, and nothing is reserved for what does not."""
    return _by_submission(strict=False)


def _by_submission(*, strict: bool) -> Policy:
    def decide(view: View) -> Pass:
        ledger, decided = Ledger(view.snapshot, view.running, view.shares), Pass(view.now)
        snapshot = view.snapshot
        for job in sorted(view.jobs, key=lambda job: (job.queued_at, job.key)):
            decided.judged.append(job.key)
            placement = _within_quotas(snapshot, ledger, job)
            if placement:
                snapshot = snapshot.take(placement)
                ledger.use(job, ledger.held_by(job, placement.holds))
                decided.placed[job.key] = placement
                continue
            quota = isinstance(place(snapshot, job.request), Placement)
            decided.refused[job.key] = "policy" if quota else "fit"
            if strict and not quota:
                break
        return decided

    return decide


def _within_quotas(snapshot: Snapshot, ledger: Ledger, job: Job) -> Placement | None:
    """Where the job can start without passing a quota."""
    request = ledger.closed(job)
    while True:
        outcome = place(snapshot, request)
        if not isinstance(outcome, Placement):
            return None
        stricter = ledger.broken(job, request, outcome)
        if stricter is None:
            return outcome
        request = stricter
