"""Days of work for a simulated cluster: its machines, its workspaces with their quotas, and who submits what when."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from random import Random

from benchmarks._simulation import Submission
from placement import (
    GpuFacts,
    GroupRequest,
    MachineFacts,
    PortFacts,
    Request,
    Selection,
    Snapshot,
    build_snapshot,
)
from placement.policy import Share

GIB = 1 << 30
GPUS = 8
HOUR, DAY = 3600.0, 86_400.0
MAIN, SIDE = "main", "side"
"""The two pools: each is one InfiniBand fabric in racks of eight machines."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of run: how often it comes among all, its size, and how long it takes on average."""

    name: str
    weight: float
    machines: tuple[int, ...]
    gpus: tuple[int, ...]
    """On each machine."""
    hours: float
    limited: float = 1.0
    """Share of these runs that have a time limit."""
    preemptible: float = 0.0
    """Share of these runs that may be preempted."""


KINDS = (
    Kind("small", 0.62, (1,), (1, 1, 2, 4), 1.5, limited=0.8, preemptible=0.3),
    Kind("machine", 0.24, (1,), (8,), 3.0, limited=0.8, preemptible=0.3),
    Kind("gang", 0.115, (2, 2, 4, 8), (8,), 3.0, limited=0.9, preemptible=0.2),
    Kind("large", 0.020, (16, 16, 24, 32, 48, 64), (8,), 4.0),
)
PRIORITIES = (0, 0, 0, 0, 0, 0, 0, 0, 1, 5)
WORKSPACES = (1, 1, 1, 2, 2, 3)
"""Who submits: the first sends half of all runs. The third sends no gang that its cap could never hold."""
CAPPED = 48
"""Machines of "main" that the third workspace may use."""


def cluster(main: int = 160, side: int = 32) -> Snapshot:
    """So many machines in each pool, all sound and free."""
    facts = [_machine(MAIN, number) for number in range(main)]
    facts += [_machine(SIDE, number) for number in range(side)]
    return build_snapshot(facts)


def _machine(pool: str, number: int) -> MachineFacts:
    return MachineFacts(
        name=f"{pool}-{number:03}",
        pool=pool,
        cpu_millicores=128_000,
        cpu_free_millicores=128_000,
        memory_bytes=2048 * GIB,
        memory_free_bytes=2048 * GIB,
        gpus=tuple(
            GpuFacts(index, model="H100", memory_bytes=80 * GIB, numa=index // 4) for index in range(GPUS)
        ),
        ports=tuple(PortFacts(f"mlx5_{index}:1", gbps=400, fabric=f"ib-{pool}") for index in range(GPUS)),
        rack=f"{pool}-r{number // 8:02}",
    )


def shares(main: int = 160, side: int = 32) -> dict[tuple[int, str], Share]:
    """Of "main" each workspace has a guaranteed part, the third a cap too; of "side" all have a cap."""
    guaranteed = {1: 0.30, 2: 0.20, 3: 0.10}
    made = {(each, MAIN): Share(guaranteed=int(part * main) * GPUS) for each, part in guaranteed.items()}
    made[3, MAIN] = Share(cap=CAPPED * GPUS, guaranteed=made[3, MAIN].guaranteed)
    return made | {(each, SIDE): Share(cap=side * 7) for each in guaranteed}


def submissions(
    snapshot: Snapshot, days: float, busy: float, seed: int, kinds: Sequence[Kind] = KINDS
) -> list[Submission]:
    """What is submitted in so many days, so that all together would keep the share `busy` of the cluster's GPUs."""
    random = Random(seed)  # noqa: S311 - a fixed sequence is the point
    gpus = int(snapshot.topology.gpus_total.sum())
    every = _gpu_seconds(kinds) / (gpus * busy)
    return [
        _submission(random, key, at, random.choices(kinds, [kind.weight for kind in kinds])[0])
        for key, at in enumerate(_arrivals(random, every, days * DAY), 1)
    ]


def _gpu_seconds(kinds: Sequence[Kind]) -> float:
    """What a run takes on average."""

    def mean(values: Sequence[int]) -> float:
        return sum(values) / len(values)

    total = sum(kind.weight for kind in kinds)
    used = (kind.weight * mean(kind.machines) * mean(kind.gpus) * kind.hours for kind in kinds)
    return sum(used) * HOUR / total


def _arrivals(random: Random, every: float, until: float) -> Iterator[float]:
    """Moments of a Poisson stream with one arrival in `every` seconds on average."""
    at = random.expovariate(1 / every)
    while at < until:
        yield round(at, 3)
        at += random.expovariate(1 / every)


def _submission(random: Random, key: int, at: float, kind: Kind) -> Submission:
    machines, gpus = random.choice(kind.machines), random.choice(kind.gpus)
    # Many short ones and a few long ones: exponential, within a twentieth and four times the mean.
    seconds = round(min(max(-log(1 - random.random()), 0.05), 4.0) * kind.hours * HOUR)
    limit = seconds * random.uniform(1.05, 3.0) if random.random() < kind.limited else None
    anywhere = machines <= 16 and random.random() < 0.5
    return Submission(
        key=key,
        at=at,
        workspace=random.choice(WORKSPACES[:5] if machines > CAPPED else WORKSPACES),
        request=request(machines, gpus, pool=None if anywhere else MAIN),
        seconds=float(seconds),
        limit=limit,
        priority=random.choice(PRIORITIES),
        preemptible=random.random() < kind.preemptible,
        patience=600.0 if machines > 1 and random.random() < 0.2 else 0.0,
    )


def request(machines: int, gpus: int, *, pool: str | None = None) -> Request:
    """So many machines with so many GPUs each; of several on one fabric."""
    together = machines > 1
    group = GroupRequest(
        gpus=machines * gpus,
        machines=machines,
        models=frozenset({"H100"}),
        cpu_millicores_per_gpu=12_000,
        memory_bytes_per_gpu=200 * GIB,
        interconnect="infiniband" if together else "any",
        keep_within="fabric" if together else None,
        selection=Selection(pools=None if pool is None else frozenset({pool})),
    )
    return Request((group,), allowed_pools=frozenset({MAIN, SIDE}))
