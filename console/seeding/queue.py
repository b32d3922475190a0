"""Runs that wait, for every kind of cause; a real pass says which, and what it reserves."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import count, cycle, islice
from random import Random

from console.seeding.asking import Ask, urgent
from console.seeding.busy import PROJECTS, Names
from console.seeding.fleet import Stand
from console.seeding.people import House
from console.seeding.works import Work, works_store
from console.seeding.zones import GPUS, RACK, ZONES
from machines.models import WorkspacePool
from runs.models import Allocation, Run
from runs.scheduling.passes import cluster_lock, cluster_pass
from tenancy.models import Workspace

CAPPED = "vision"
"""The workspace whose quota of the first pool is used up."""
FIRST, SECOND = ZONES[0], ZONES[1]
ATTEMPTS = 3
"""How often runs are added for those that a pass found room for after all."""


def queue_make(
    house: House, stands: Sequence[Stand], amount: int, names: Names, random: Random, now: datetime
) -> int:
    """So many runs that wait after a pass has looked at them; what it places starts. How many wait."""
    capped = next(each for each in house.workspaces if each.slug == CAPPED)
    _cap(capped, house)
    asks = _asks(stands, capped, house)
    for _ in range(ATTEMPTS):
        waiting = Run.objects.waiting().filter(cluster=house.cluster).count()
        missing = amount - waiting
        if missing <= 0:
            break
        works_store(
            [
                _work(house, workspace, ask, names.take(), random, now)
                for workspace, ask in islice(asks, missing)
            ]
        )
        with cluster_lock(house.cluster.id):
            cluster_pass(house.cluster.id)
    return Run.objects.waiting().filter(cluster=house.cluster).count()


def _cap(workspace: Workspace, house: House) -> None:
    """What the workspace uses of the first pool is all that it may."""
    used = Allocation.objects.filter(
        released_at=None,
        gpu__isnull=False,
        machine__pool=house.pools[FIRST.pool],
        assignment__attempt__run__workspace=workspace,
    ).count()
    access = WorkspacePool.objects.filter(workspace=workspace, pool=house.pools[FIRST.pool])
    access.update(gpu_cap=max(used, GPUS))


def _asks(stands: Sequence[Stand], capped: Workspace, house: House) -> Iterator[tuple[Workspace, Ask]]:
    """First one that all free machines of the first zone are kept for; then of every kind in turn."""
    free = Counter(stand.zone.pool for stand in stands if stand.wholly_free)
    size = Counter(stand.zone.pool for stand in stands)
    others = [each for each in house.workspaces if each is not capped]
    kept = min(free[FIRST.pool] + 2, size[FIRST.pool])
    first = Ask(kept, GPUS, FIRST.model, FIRST.pool, "fabric", infiniband=True, limit_hours=24)
    yield others[0], urgent(first)
    kinds = cycle(("fit", "order", "rack", "policy", "never"))
    for number, kind in zip(count(1), kinds):
        workspace = house.workspaces[number % len(house.workspaces)]
        match kind:
            case "order":  # would fit on what is kept for the first
                yield others[number % len(others)], Ask(1, GPUS, FIRST.model, FIRST.pool)
            case "policy":
                yield capped, Ask(2, GPUS, FIRST.model, FIRST.pool, "fabric", infiniband=True)
            case "never":
                yield workspace, Ask(2 * RACK, GPUS, FIRST.model, keep_within="rack", infiniband=True)
            case "rack":
                yield workspace, Ask(RACK, GPUS, "H200", keep_within="rack", infiniband=True, gbps=400)
            case _:
                machines = min(free[SECOND.pool] + 1 + number % 3, size[SECOND.pool])
                yield (
                    workspace,
                    Ask(machines, GPUS, SECOND.model, SECOND.pool, "fabric", infiniband=True, gbps=400),
                )


def _work(house: House, workspace: Workspace, ask: Ask, name: str, random: Random, now: datetime) -> Work:
    queued = now - timedelta(minutes=random.uniform(1, 600))
    labels = {"project": random.choice(PROJECTS)}
    run = Run(
        workspace=workspace,
        cluster=house.cluster,
        name=name,
        labels=labels,
        document=ask.document(name, labels),
        created_by=random.choice(house.people),
        reason={"code": "queued"},
        priority=ask.priority,
        created_at=queued,
        queued_at=queued,
    )
    return Work(run, ask)
