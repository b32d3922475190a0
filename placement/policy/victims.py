"""Whom a preemption may stop: preemptible runs of lower priority, or ones that borrow what is guaranteed to another."""

from collections.abc import Iterable, Sequence

from placement.policy.jobs import Job, Running
from placement.policy.quotas import Ledger
from placement.policy.reserve import SPARED_SECONDS
from placement.preempt import Candidate


def candidates(job: Job, running: Iterable[Running], ledger: Ledger, now: float) -> list[Candidate]:
    """The runs that may be stopped so that this job can start, with the GPU-seconds that would be lost."""
    stoppable = [run for run in running if stoppable_now(run, now)]
    lower = [run for run in stoppable if run.priority < job.priority]
    due = _due(job, [run for run in stoppable if run.priority >= job.priority], ledger)
    return [Candidate(run.holding, run.gpus * (now - run.started_at)) for run in (*lower, *due)]


def stoppable_now(run: Running, now: float) -> bool:
    return run.preemptible and not run.leaving and now - run.started_at >= SPARED_SECONDS


def _due(job: Job, stoppable: Sequence[Running], ledger: Ledger) -> list[Running]:
    """Those that hold what is guaranteed to the job's workspace, as long as the job asks for no more than that."""
    pools = ledger.pools_due(job)
    if not pools:
        return []
    borrowed = {run.holding.key: run for pool in pools for run in _borrowing(job, stoppable, ledger, pool)}
    return list(borrowed.values())


def _borrowing(job: Job, stoppable: Sequence[Running], ledger: Ledger, pool: str) -> list[Running]:
    """Other workspaces' runs beyond their own guarantee in this pool: of each workspace the newest ones."""
    excess: dict[int, int] = {}
    found = []
    for run in sorted(stoppable, key=lambda run: (-run.started_at, run.holding.key)):
        gpus = ledger.gpus_in(pool, run)
        if run.workspace == job.workspace or not gpus:
            continue
        left = excess.setdefault(run.workspace, ledger.borrowed(run.workspace, pool))
        if left > 0:
            found.append(run)
            excess[run.workspace] = left - gpus
    return found
