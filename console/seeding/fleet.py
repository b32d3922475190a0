"""The machines: most are sound, and of each fault that pages show there are some."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from console.seeding.copying import rows_copy
from console.seeding.people import House
from console.seeding.zones import CORES, GPUS, MEMORY, RACK, ZONES, Zone
from machines.models import Fabric, Gpu, HealthEvent, Machine, MachineLabel, RdmaPort
from machines.states import RACK_LABEL, Health, MachineState

REASONS = ("changing a cable", "new firmware", "NCCL tests", "fan replaced, watching it")
SIGNS = {
    Health.SUSPECT: (
        "NVLink errors growing (12 in 10 min)",
        "correctable ECC errors growing",
        "82 °C, throttled",
    ),
    Health.FAULTY: ("fell off the bus (Xid 79)", "uncorrectable ECC error (Xid 48)", "NVLink down (Xid 74)"),
}

TROUBLES = {
    "cordoned": (37, 11),
    "draining": (89, 40),
    "unreachable": (71, 20),
    "quarantined": (997, 500),
    "suspect": (151, 7),
    "faulty": (211, 19),
    "port down": (397, 100),
}
"""One machine, GPU or port in so many, and which: by number, so that a small cluster has some of each too."""


def _has(trouble: str, number: int) -> bool:
    every, which = TROUBLES[trouble]
    return number % every == which


@dataclass(slots=True)
class Stand:
    """A machine with what runs need of it."""

    machine: Machine
    zone: Zone
    gpus: list[Gpu] = field(default_factory=list)
    held: set[int] = field(default_factory=set)
    """Indices of GPUs."""

    @property
    def usable(self) -> bool:
        return self.machine.state == MachineState.READY

    @property
    def sound(self) -> list[Gpu]:
        return [gpu for gpu in self.gpus if gpu.health != Health.FAULTY]

    @property
    def wholly_free(self) -> bool:
        """As a run that asks for healthy GPUs sees it."""
        return self.usable and not self.held and all(gpu.health == Health.HEALTHY for gpu in self.gpus)


def fleet_make(house: House, count: int, random: Random, now: datetime) -> list[Stand]:
    """So many machines with GPUs, ports, labels and a history of their health."""
    zones = list(_zones(count))
    machines = rows_copy(
        [_machine(house, zone, number, count, random, now) for number, zone in enumerate(zones)]
    )
    stands = [Stand(machine, zone) for machine, zone in zip(machines, zones, strict=True)]
    for number, stand in enumerate(stands):
        stand.gpus = [_gpu(stand, number, index, random) for index in range(GPUS)]
    rows_copy([gpu for stand in stands for gpu in stand.gpus])
    fabrics = _fabrics(house)
    rows_copy([port for number, stand in enumerate(stands) for port in _ports(stand, number, fabrics)])
    rows_copy([_rack(stand, number) for number, stand in enumerate(stands) if number % 53])
    rows_copy([event for stand in stands for event in _events(stand, random, now)])
    return stands


def _zones(count: int) -> Iterator[Zone]:
    """The zone of each machine, in order; the last zone takes what rounding leaves."""
    left = count
    for zone in ZONES[:-1]:
        size = round(zone.share * count)
        left -= size
        yield from [zone] * size
    yield from [ZONES[-1]] * left


def _machine(house: House, zone: Zone, number: int, count: int, random: Random, now: datetime) -> Machine:
    machine = Machine(
        cluster=house.cluster,
        pool=house.pools[zone.pool],
        name=f"gpu-{number + 1:0{max(2, len(str(count)))}}",
        runtime="docker",
        agent_version="0.1.0",
        simulated=True,
        address=f"10.{20 + number // 65_536}.{number // 256 % 256}.{number % 256}",
        boot_id=f"boot-{number}",
        kernel="6.8.0-71-generic",
        cpu_cores=CORES,
        memory_bytes=MEMORY,
        last_seen_at=now,
    )
    _trouble(machine, number, random, now)
    return machine


def _trouble(machine: Machine, number: int, random: Random, now: datetime) -> None:
    since = now - timedelta(hours=random.uniform(1, 72))
    if _has("cordoned", number):
        machine.cordoned_at, machine.cordoned_by = since, "ops"
        machine.cordon_reason = random.choice(REASONS)
    elif _has("draining", number):
        machine.cordoned_at = machine.draining_at = now - timedelta(minutes=20)
        machine.cordoned_by, machine.drain_until = "ops", now + timedelta(hours=2)
        machine.cordon_reason = "moves to another rack"
    elif _has("unreachable", number):
        machine.unreachable_at = since
    elif _has("quarantined", number):
        machine.quarantined_at = since


def _gpu(stand: Stand, number: int, index: int, random: Random) -> Gpu:
    place = number * GPUS + index
    healths = [health for health in SIGNS if _has(health.value, place)]
    health = healths[-1] if healths else Health.HEALTHY
    domain = f"nvl-{number // RACK + 1}" if stand.zone.nvlink_domains else ""
    return Gpu(
        machine=stand.machine,
        uuid=f"GPU-{stand.machine.name}-{index}",
        index=index,
        product=stand.zone.product,
        model=stand.zone.model,
        memory_bytes=stand.zone.gpu_memory,
        numa_node=index // 4,
        nvlink_domain=domain,
        health=health,
        evidence=random.choice(SIGNS[health]) if health in SIGNS else "",
        pci_bus=f"0000:{0x17 + index * 0x10:02x}:00.0",
    )


def _fabrics(house: House) -> dict[str, Fabric]:
    names = [zone.fabric for zone in ZONES if zone.fabric]
    rows = [
        Fabric(cluster=house.cluster, key=f"0xfe80000000000000/0xb8cef6030000{0xC1 + number:04x}", name=name)
        for number, name in enumerate(names)
    ]
    return dict(zip(names, rows_copy(rows), strict=True))


def _ports(stand: Stand, number: int, fabrics: dict[str, Fabric]) -> Iterator[RdmaPort]:
    if not stand.zone.fabric:
        return
    for index in range(GPUS):
        up = not _has("port down", number * GPUS + index)
        yield RdmaPort(
            machine=stand.machine,
            device=f"mlx5_{index}",
            port=1,
            link_layer=stand.zone.link,
            state="ACTIVE" if up else "DOWN",
            physical_state="LinkUp" if up else "Polling",
            rate_gbps=stand.zone.gbps,
            fabric=fabrics[stand.zone.fabric],
            guid=f"b8cef603{number:06x}{index:02x}",
            lid=number * GPUS + index + 1,
            sm_lid=1,
            numa_node=index // 4,
        )


def _rack(stand: Stand, number: int) -> MachineLabel:
    """Of every machine but a few whose rack nobody has said."""
    return MachineLabel(machine=stand.machine, key=RACK_LABEL, value=f"r{number // RACK + 1}", found=True)


def _events(stand: Stand, random: Random, now: datetime) -> Iterator[HealthEvent]:
    """How each GPU came to be what it is; some had recovered before."""
    for gpu in stand.gpus:
        if gpu.health == Health.HEALTHY:
            continue
        at = now - timedelta(hours=random.uniform(1, 200))
        if gpu.health == Health.FAULTY:
            sign = random.choice(SIGNS[Health.SUSPECT])
            yield _event(gpu, at - timedelta(hours=3), Health.HEALTHY, Health.SUSPECT, sign)
        was = Health.SUSPECT if gpu.health == Health.FAULTY else Health.HEALTHY
        yield _event(gpu, at, was, Health(gpu.health), gpu.evidence)


def _event(gpu: Gpu, at: datetime, was: Health, health: Health, evidence: str) -> HealthEvent:
    return HealthEvent(
        machine=gpu.machine,
        event_id=f"{gpu.index}-{at.timestamp():.0f}",
        at=at,
        subject=f"gpu:{gpu.uuid}",
        name=f"GPU {gpu.index}",
        was=was,
        health=health,
        evidence=evidence,
    )
