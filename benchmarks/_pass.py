"""Deciding about 1,000 runs that wait: the pure part of a pass."""

from collections import Counter
from dataclasses import replace
from random import Random
from statistics import median

from benchmarks._explain import holding_of
from benchmarks._fleet import POOLS, Fleet
from benchmarks._measure import timed
from benchmarks._requests import Requests
from placement import Request, Snapshot
from placement.policy import Cycle, Job, Memory, Placed, Running, Share

JOBS = 1000
WORKSPACES = 10
NOW = 0.0
"""The tenants' times count from here."""


def pass_ms(snapshot: Snapshot, fleet: Fleet, rounds: int) -> float:
    """The median of so many passes over the same queue, each from a snapshot of its own; one goes before, uncounted.

    Whom the jobs could have stopped was stopped by passes before: of the preemptible runs, few are of low priority.
    """
    jobs, memory = jobs_of(fleet), Memory()
    running = [
        Running(
            holding_of(tenant),
            tenant.key % WORKSPACES,
            priority=0 if tenant.key % 100 == 0 else 5,
            started_at=NOW - 7200,
            preemptible=tenant.key % 4 == 0,
        )
        for tenant in fleet.tenants
    ]
    times = []
    for _ in range(rounds + 1):
        seen = replace(snapshot)
        times.append(timed(lambda seen=seen: decide(seen, jobs, running, memory))[0])  # type: ignore[misc]
    return median(times[1:])


def decide(snapshot: Snapshot, jobs: list[Job], running: list[Running], memory: Memory) -> Counter[str]:
    """What a pass does but for reading and writing the database; how many jobs got which answer."""
    shares = {
        (workspace, pool): Share(cap=8000, guaranteed=1000)
        for workspace in range(WORKSPACES)
        for pool in POOLS[:2]
    }
    usage = {workspace: 1e6 * workspace for workspace in range(WORKSPACES)}
    cycle = Cycle(snapshot, jobs, running, shares, usage, NOW, memory)
    said: Counter[str] = Counter()
    for job in cycle.order():
        decision = cycle.judge(job)
        if isinstance(decision, Placed):
            cycle.took(job, decision.placement)
        said[getattr(decision, "kind", type(decision).__name__)] += 1
    return said


def jobs_of(fleet: Fleet) -> list[Job]:
    """A queue as busy clusters have it: many small runs, some gangs, a few large ones; no two alike."""
    random, requests = Random(5), Requests(fleet, seed=5)  # noqa: S311 - a fixed sequence is the point
    return [
        Job(
            key=1_000_000 + number,
            workspace=random.randrange(WORKSPACES),
            priority=random.choice((0, 0, 0, 0, 1, 5)),
            queued_at=NOW - random.uniform(0, 86_400),
            request=_open(_request(random, requests)),
            preemptible=random.random() < 0.3,
            limit_seconds=random.uniform(600, 86_400) if random.random() < 0.7 else None,
        )
        for number in range(JOBS)
    ]


def _request(random: Random, requests: Requests) -> Request:
    drawn = random.random()
    if drawn < 0.6:
        return requests.small(random.choice((1, 1, 2, 4, 8, 8)))
    return requests.gang(random.choice((2, 2, 4, 8) if drawn < 0.9 else (16, 32, 64, 96)))


def _open(request: Request) -> Request:
    """Without what the pass itself adds."""
    return replace(request, reserved=frozenset(), over_cap=frozenset(), guaranteed_to_others=frozenset())
