"""Machines as lines of the list. Of what a machine has only columns are read: a page shows hundreds of GPUs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.db.models import QuerySet
from django.utils import timezone

from console.pages.machine_facts import models_words
from console.pages.words import gpu_counts
from console.versions import agent_is_old
from machines.models import Gpu, Machine, MachineLabel, RdmaPort
from machines.states import FABRIC_LABEL, RACK_LABEL, LinkLayer
from runs.lemons import LEMON_FROM, Counted, failures_counted, lemon_score
from runs.models import Allocation
from runs.scheduling.running import grouped

_COLUMNS = (
    "name",
    "agent_version",
    "simulated",
    "pool__slug",
    "last_seen_at",
    "unreachable_at",
    "quarantined_at",
    "two_agents_at",
    "draining_at",
    "cordoned_at",
)


class GpuSeen(NamedTuple):
    """What the list shows of a GPU."""

    id: int
    health: str
    model: str


@dataclass(frozen=True, slots=True)
class MachineRow:
    machine: Machine
    gpus: list[GpuSeen]
    held: frozenset[int]
    counts: str
    models: str
    fabric: str
    rack: str
    lemon: float
    """Its lemon score; 0 for a machine that is none."""
    lemon_why: str
    """`Failures here: its worker was lost (3), it was not ready in time`."""
    old_agent: bool


def machines_for_rows(machines: QuerySet[Machine]) -> QuerySet[Machine]:
    return machines.select_related("pool").only(*_COLUMNS)


def machine_rows(machines: Sequence[Machine]) -> list[MachineRow]:
    """`machines` as loaded by `machines_for_rows`."""
    ids = [machine.id for machine in machines]
    held = Allocation.objects.filter(machine__in=ids, released_at=None, gpu__isnull=False)
    parts = _Parts(ids, frozenset(gpu for gpu in held.values_list("gpu_id", flat=True) if gpu is not None))
    failures = failures_counted(machines, timezone.now())
    return [_row(machine, parts, failures.get(machine.id, [])) for machine in machines]


class _Parts:
    """What the machines with these ids have, by machine id."""

    def __init__(self, ids: Sequence[int], held: frozenset[int]) -> None:
        gpus = Gpu.objects.filter(machine__in=ids, present=True).order_by("index")
        labels = MachineLabel.objects.filter(machine__in=ids, key__in=(FABRIC_LABEL, RACK_LABEL))
        ports = RdmaPort.objects.filter(machine__in=ids, link_layer=LinkLayer.INFINIBAND)
        joined = ports.filter(fabric__isnull=False).order_by("device", "port")
        self.held = held
        self.gpus = grouped(gpus.values_list("machine_id", *GpuSeen._fields))
        self.labels = grouped(labels.values_list("machine_id", "key", "found", "value"))
        self.fabrics = grouped(joined.values_list("machine_id", "fabric__name"))

    def place(self, machine: Machine, key: str) -> str:
        """What a person set, even if that is nothing; else what the machine reports, else where most ports lead."""
        said = {(name, found): value for name, found, value in self.labels[machine.id]}
        reported = said.get((key, True)) or self._led_to(machine, key)
        value: str = said.get((key, False), reported)
        return value

    def _led_to(self, machine: Machine, key: str) -> str:
        names = (
            Counter(name for (name,) in self.fabrics[machine.id]) if key == FABRIC_LABEL else Counter[str]()
        )
        return next((name for name, _ in names.most_common(1)), "")


def _row(machine: Machine, parts: _Parts, failures: list[Counted]) -> MachineRow:
    gpus = [GpuSeen(*row) for row in parts.gpus[machine.id]]
    score = lemon_score(failures)
    return MachineRow(
        machine=machine,
        gpus=gpus,
        held=parts.held,
        counts=gpu_counts(gpus, parts.held),
        models=models_words(gpus),
        fabric=parts.place(machine, FABRIC_LABEL),
        rack=parts.place(machine, RACK_LABEL),
        lemon=score if score >= LEMON_FROM else 0.0,
        lemon_why=_kinds_words(failures),
        old_agent=agent_is_old(machine.agent_version),
    )


def _kinds_words(failures: Iterable[Counted]) -> str:
    kinds = Counter[str]()
    for each in failures:
        kinds[each.failure.get_kind_display()] += each.failure.times
    told = [f"{kind} ({times})" if times > 1 else kind for kind, times in kinds.most_common()]
    return f"Failures here: {', '.join(told)}" if told else ""
