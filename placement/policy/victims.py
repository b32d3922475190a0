"""Whom a preemption may stop: preemptible runs of lower priority, or ones that borrow what is guaranteed to another."""

from collections.abc import Collection, Iterable

from placement.policy.jobs import Job, Running
from placement.policy.quotas import Ledger
from placement.policy.reserve import SPARED_SECONDS
from placement.preempt import Candidate


class Victims:
    """The runs that may be stopped for some job, the newest first."""

    def __init__(self, running: Iterable[Running], ledger: Ledger, now: float) -> None:
        these = [
            run
            for run in running
            if run.preemptible and not run.leaving and now - run.started_at >= SPARED_SECONDS
        ]
        self._runs = sorted(these, key=lambda run: (-run.started_at, run.holding.key))
        self._ledger, self._now = ledger, now
        self._in_pool: dict[str, list[tuple[Running, int]]] = {}
        """By pool: those that hold GPUs of it, and how many."""

    def may_be_for(self, job: Job) -> bool:
        """Cheap, for the many for which none may be stopped."""
        lowest = min((run.priority for run in self._runs), default=job.priority)
        return lowest < job.priority or (bool(self._runs) and bool(self._ledger.pools_due(job)))

    def for_job(self, job: Job) -> list[Candidate]:
        """Which of them may be stopped so that this job can start, and the GPU-seconds that would be lost."""
        lower = [run for run in self._runs if run.priority < job.priority]
        due = [run for pool in self._ledger.pools_due(job) for run in self._borrowing(job, pool)]
        these = {run.holding.key: run for run in (*lower, *due)}
        return [Candidate(run.holding, run.gpus * (self._now - run.started_at)) for run in these.values()]

    def stopped(self, keys: Collection[int]) -> None:
        """These are being stopped already."""
        self._runs = [run for run in self._runs if run.holding.key not in keys]
        self._in_pool.clear()

    def _borrowing(self, job: Job, pool: str) -> list[Running]:
        """Other workspaces' runs, not of lower priority, beyond their own guarantee in this pool: of each workspace the
        newest ones. To be had as long as the job asks for no more than what is guaranteed to its own workspace."""
        excess: dict[int, int] = {}
        found = []
        for run, gpus in self._holding(pool):
            if run.workspace == job.workspace or run.priority < job.priority:
                continue
            left = excess.get(run.workspace)
            if left is None:
                left = self._ledger.borrowed(run.workspace, pool)
            if left > 0:
                found.append(run)
            excess[run.workspace] = left - gpus
        return found

    def _holding(self, pool: str) -> list[tuple[Running, int]]:
        if pool not in self._in_pool:
            counted = [(run, self._ledger.gpus_in(pool, run)) for run in self._runs]
            self._in_pool[pool] = [(run, gpus) for run, gpus in counted if gpus]
        return self._in_pool[pool]
