"""Whom a preemption may stop: preemptible runs of lower priority, or ones that borrow what is guaranteed to another."""

from collections.abc import Iterable, Sequence

from placement.policy.jobs import Job, Running
from placement.policy.quotas import Ledger
from placement.policy.reserve import SPARED_SECONDS
from placement.preempt import Candidate


def candidates(job: Job, stoppable: Sequence[Running], ledger: Ledger, now: float) -> list[Candidate]:
    """Which of the runs that can be stopped may be, so that this job can start, and the GPU-seconds that would be lost.

    `stoppable`: the newest first (`stoppable_now`).
    """
    lower = [run for run in stoppable if run.priority < job.priority]
    due = _due(job, [run for run in stoppable if run.priority >= job.priority], ledger)
    return [Candidate(run.holding, run.gpus * (now - run.started_at)) for run in (*lower, *due)]


def stoppable_now(running: Iterable[Running], now: float) -> list[Running]:
    """Those that may be stopped for some job, the newest first."""
    stoppable = [
        run
        for run in running
        if run.preemptible and not run.leaving and now - run.started_at >= SPARED_SECONDS
    ]
    return sorted(stoppable, key=lambda run: (-run.started_at, run.holding.key))


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
    for run in stoppable:
        gpus = ledger.gpus_in(pool, run)
        if run.workspace == job.workspace or not gpus:
            continue
        left = excess.setdefault(run.workspace, ledger.borrowed(run.workspace, pool))
        if left > 0:
            found.append(run)
            excess[run.workspace] = left - gpus
    return found
