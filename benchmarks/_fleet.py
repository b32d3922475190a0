"""A fleet as the engine sees it: thousands of machines, 90 % busy, with the faults and odd corners of real ones.

Everything is drawn from one fixed seed: every process gets the same machines, in the same state, with the same runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from placement import GpuFacts, MachineFacts, MachineState, PortFacts

GIB = 1 << 30
GPUS = 8
"""On every machine."""
CORES, MEMORY = 128, 2048 * GIB
CORES_PER_GPU, MEMORY_PER_GPU = 12, 160 * GIB
"""What the runs that hold GPUs hold beside each of them."""
SEED = 20251201
HELD_WHOLE, HELD_PARTLY = 0.876, 0.06
"""Shares of the machines on which every GPU is held, and on which some are: together 90 % of the GPUs."""
DRIVES = ("datasets", "scratch")


@dataclass(frozen=True)
class Zone:
    """One network: its machines are of one model, with compute ports of one speed."""

    fabric: str
    """Name of the compute fabric; "" for machines without RDMA."""
    share: float
    """Of the fleet's machines."""
    model: str
    gpu_memory: int
    link: str = "infiniband"
    gbps: int = 400
    pool: str = "train"
    nvlink_domains: bool = False
    """Each rack is one NVLink domain."""


ZONES = (
    Zone("ib-a", 0.20, "H100", 80 * GIB),
    Zone("ib-b", 0.20, "H100", 80 * GIB, pool="research"),
    Zone("ib-c", 0.20, "H200", 141 * GIB, nvlink_domains=True),
    Zone("ib-d", 0.20, "A100", 80 * GIB, gbps=200, pool="research"),
    Zone("roce-a", 0.12, "H100", 80 * GIB, link="ethernet"),
    Zone("", 0.08, "L40S", 48 * GIB, pool="small"),
)
POOLS = tuple(sorted({zone.pool for zone in ZONES}))
STORAGE_FABRIC = "storage"
"""A second class of ports on every machine with RDMA, at 200 Gb/s; out of placement."""

_FAULTS = (
    (MachineState.READY | MachineState.CORDONED, 0.010),
    (MachineState.READY | MachineState.DRAINING, 0.005),
    (MachineState.READY | MachineState.STALE_AGENT, 0.005),
    (MachineState.UNREACHABLE, 0.005),
    (MachineState.QUARANTINED, 0.002),
)


@dataclass
class Tenant:
    """A run that holds GPUs: machine name → indices of its GPUs there."""

    key: int
    name: str
    holds: dict[str, tuple[int, ...]] = field(default_factory=dict)
    ends_in: float | None = None
    """Seconds until its time limit, if it has one."""


@dataclass(frozen=True)
class Fleet:
    """Machines, sorted by name, and the runs on them."""

    machines: tuple[MachineFacts, ...]
    tenants: tuple[Tenant, ...]


@dataclass
class _Stand:
    """A machine on its way to being described."""

    name: str
    zone: Zone
    rack: str
    held: tuple[int, ...] = ()


def fleet_of(size: int) -> Fleet:
    """The fleet of so many machines; the networks, racks and states keep their shares."""
    random = Random(SEED)  # noqa: S311 - a fixed sequence is the point
    stands = list(_stands(random, size))
    tenants = _occupy(random, stands)
    return Fleet(tuple(_machine(random, number, stand) for number, stand in enumerate(stands)), tenants)


def _stands(random: Random, size: int) -> Iterator[_Stand]:
    """Racks of 8 to 16 machines, each in one network; one in fifty machines has no rack that is known."""
    number = rack = 0
    for zone in ZONES:
        last = min(size, number + round(zone.share * size))
        while number < last:
            rack += 1
            for _ in range(min(random.randint(8, 16), last - number)):
                known = random.random() >= 0.02
                yield _Stand(f"gpu-{number:05}", zone, f"r{rack:04}" if known else "")
                number += 1


def _occupy(random: Random, stands: Sequence[_Stand]) -> tuple[Tenant, ...]:
    """Gangs of 1 to 64 whole machines side by side, with whole and partly free machines between them."""
    tenants: list[Tenant] = []
    whole: Tenant | None = None
    left = 0
    for stand in stands:
        drawn = random.random()
        if drawn < HELD_WHOLE:
            if whole is None or left == 0:
                whole, left = _tenant(random, tenants), random.choice((1, 1, 2, 2, 4, 8, 16, 64))
            left -= 1
            stand.held = whole.holds[stand.name] = tuple(range(GPUS))
        elif drawn < HELD_WHOLE + HELD_PARTLY:
            for gpus in _parts(random):
                _tenant(random, tenants).holds[stand.name] = gpus
                stand.held += gpus
    return tuple(tenants)


def _tenant(random: Random, tenants: list[Tenant]) -> Tenant:
    """One more run; two of three have a time limit."""
    limit = random.uniform(600, 72 * 3600) if random.random() < 2 / 3 else None
    tenants.append(Tenant(len(tenants) + 1, f"run-{len(tenants) + 1}", ends_in=limit))
    return tenants[-1]


def _parts(random: Random) -> Iterator[tuple[int, ...]]:
    """One to three small runs on a machine, some GPUs left free."""
    start = 0
    for _ in range(random.randint(1, 3)):
        size = random.choice((1, 1, 2, 4))
        if start + size >= GPUS:
            return
        yield tuple(range(start, start + size))
        start += size


def _machine(random: Random, number: int, stand: _Stand) -> MachineFacts:
    zone, held = stand.zone, len(stand.held)
    return MachineFacts(
        name=stand.name,
        id=number + 1,
        pool=zone.pool,
        state=_state(random),
        cpu_millicores=CORES * 1000,
        cpu_free_millicores=(CORES - CORES_PER_GPU * held) * 1000,
        memory_bytes=MEMORY,
        memory_free_bytes=MEMORY - MEMORY_PER_GPU * held,
        gpus=tuple(_gpu(random, number, index, stand) for index in range(GPUS)),
        ports=tuple(_ports(random, zone)),
        rack=stand.rack or None,
        nvlink_domain=f"nvl-{stand.rack}" if zone.nvlink_domains and stand.rack else None,
        labels=_labels(random, number),
        drives=frozenset(drive for drive in DRIVES if random.random() < 0.95),
    )


def _state(random: Random) -> MachineState:
    drawn = random.random()
    for state, share in _FAULTS:
        if drawn < share:
            return state
        drawn -= share
    return MachineState.READY


def _gpu(random: Random, number: int, index: int, stand: _Stand) -> GpuFacts:
    held = index in stand.held
    return GpuFacts(
        index=index,
        id=number * GPUS + index + 1,
        model=stand.zone.model,
        memory_bytes=stand.zone.gpu_memory,
        numa=index // 4,
        held=held,
        suspect=random.random() < 0.003,
        faulty=not held and random.random() < 0.002,
    )


def _ports(random: Random, zone: Zone) -> Iterator[PortFacts]:
    if not zone.fabric:
        return
    for index in range(GPUS):
        up = random.random() >= 0.002
        link = zone.link
        yield PortFacts(
            f"mlx5_{index}:1",
            "infiniband" if link == "infiniband" else "ethernet",
            up,
            zone.gbps,
            zone.fabric,
        )
    yield PortFacts(f"mlx5_{GPUS}:1", "infiniband", gbps=200, fabric=STORAGE_FABRIC)


def _labels(random: Random, number: int) -> dict[str, str]:
    """Few values that many machines share, and one that is each machine's own."""
    return {
        "tier": "gold" if random.random() < 0.9 else "silver",
        "driver": random.choice(("570", "570", "570", "565")),
        "serial": f"s{number % 500:03}",
    }
