"""Who goes first: priority → restarted → machines reserved already → fair share → submission.

Fair share names whose turn is next. A run that had its turn and could not start keeps it: else every small run of a
workspace that has used less would take the machines that are being freed for it, and a large gang would never start.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from itertools import groupby

from placement.policy.jobs import Job

CHARGED_SECONDS = 3600.0
"""What a placement is charged at once at most: a job without a time limit must not push its workspace back for days."""


class Order:
    """Yields jobs one at a time; what is placed meanwhile is charged and changes who is next."""

    def __init__(self, usage: Mapping[int, float], guaranteed: Mapping[int, int]) -> None:
        """`usage`: decayed GPU-seconds by workspace; `guaranteed`: GPUs guaranteed to it over all pools."""
        self._usage = dict(usage)
        self._guaranteed = guaranteed

    def charge(self, job: Job) -> None:
        seconds = CHARGED_SECONDS if job.limit_seconds is None else min(job.limit_seconds, CHARGED_SECONDS)
        self._usage[job.workspace] = self._usage.get(job.workspace, 0.0) + job.gpus * seconds

    def share(self, workspace: int) -> float:
        """What the workspace has used of what it is due; the smaller goes first."""
        return self._usage.get(workspace, 0.0) / max(1, self._guaranteed.get(workspace, 0))

    def run(self, jobs: Iterable[Job]) -> Iterator[Job]:
        def level(job: Job) -> tuple[int, bool, bool]:
            return (-job.priority, not job.ahead, not job.kept)

        for (_, waits, by_turn), equals in groupby(sorted(jobs, key=level), key=level):
            by_age = sorted(equals, key=_age)
            yield from self._fairly(by_age) if waits and by_turn else by_age

    def _fairly(self, jobs: list[Job]) -> Iterator[Job]:
        queues: dict[int, list[Job]] = {}
        for job in reversed(jobs):
            queues.setdefault(job.workspace, []).append(job)
        turns = [self._turn(queue) for queue in queues.values()]
        heapify(turns)
        while turns:
            queue = queues[turns[0][-1]]
            yield queue.pop()
            # Meanwhile this job alone was charged, if any.
            if queue:
                heapreplace(turns, self._turn(queue))
            else:
                heappop(turns)

    def _turn(self, queue: list[Job]) -> tuple[float, float, int, int]:
        """When it is the turn of the workspace whose jobs these are, the last one first; the smaller goes first."""
        first = queue[-1]
        return (self.share(first.workspace), *_age(first), first.workspace)


def _age(job: Job) -> tuple[float, int]:
    return (job.queued_at, job.key)
