"""The filters that the list of machines and the map share; all of them stand in the address."""

from dataclasses import dataclass, fields
from urllib.parse import urlencode

from django.db.models import Count, Exists, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import QueryDict

from console.numbers import number_read
from machines.models import Cluster, Fabric, Gpu, Machine, MachineLabel, Pool, RdmaPort
from machines.selectors import (
    STATES,
    machines_labelled,
    machines_on_fabric,
    machines_unlabelled,
    machines_with_model,
    models_there,
)
from machines.states import FABRIC_LABEL, RACK_LABEL, Health, MachineState
from runs.models import Allocation

NOT_KNOWN = "-"
"""As a rack: that of machines whose rack is not known. No label has this value."""
TEXT_LIMIT = 100


@dataclass(frozen=True, slots=True)
class Filters:
    text: str = ""
    state: str = ""
    pool: str = ""
    fabric: str = ""
    rack: str = ""
    model: str = ""
    free: str = ""
    """Free GPUs at least, as typed."""

    @classmethod
    def of(cls, query: QueryDict) -> "Filters":
        return cls(**{each.name: query.get(each.name, "").strip()[:TEXT_LIMIT] for each in fields(cls)})

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))

    @property
    def query(self) -> str:
        """The same filters in another view's address."""
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        encoded = urlencode({name: value for name, value in named.items() if value})
        return f"?{encoded}" if encoded else ""

    @property
    def place(self) -> "Filters":
        """Of these only where a machine is."""
        return Filters(fabric=self.fabric, rack=self.rack)

    @property
    def free_at_least(self) -> int:
        """0 for what is no number."""
        return number_read(self.free) or 0

    @property
    def problem(self) -> str:
        """What is wrong with what was typed; empty when nothing is."""
        if self.free and number_read(self.free) is None:
            return "Free GPUs at least must be a number, such as 8."
        return ""

    def apply(self, machines: QuerySet[Machine]) -> QuerySet[Machine]:
        machines = self._named(machines)
        if self.fabric:
            machines = machines_on_fabric(machines, self.fabric)
        if self.rack == NOT_KNOWN:
            machines = machines_unlabelled(machines, RACK_LABEL)
        elif self.rack:
            machines = machines_labelled(machines, RACK_LABEL, self.rack)
        if self.model:
            machines = machines_with_model(machines, self.model)
        return machines_with_free(machines, self.free_at_least) if self.free_at_least else machines

    def _named(self, machines: QuerySet[Machine]) -> QuerySet[Machine]:
        if self.text:
            machines = machines.filter(name__icontains=self.text)
        if self.state:
            known = self.state in MachineState.values
            machines = machines.filter(STATES[MachineState(self.state)]) if known else machines.none()
        return machines.filter(pool__slug=self.pool) if self.pool else machines


def machines_with_free(machines: QuerySet[Machine], count: int) -> QuerySet[Machine]:
    """Those with so many GPUs that are neither held nor faulty."""
    held = Allocation.objects.filter(gpu=OuterRef("pk"), released_at=None)
    free = (
        Gpu.objects.filter(~Exists(held), machine=OuterRef("pk"), present=True)
        .exclude(health=Health.FAULTY)
        .order_by()
        .values("machine")
        .annotate(count=Count("pk"))
        .values("count")
    )
    counted = Coalesce(Subquery(free, output_field=IntegerField()), 0)
    return machines.annotate(gpus_free=counted).filter(gpus_free__gte=count)


@dataclass(frozen=True, slots=True)
class Choices:
    """What the filters offer in this cluster."""

    states: list[tuple[str, str]]
    pools: list[str]
    fabrics: list[str]
    racks: list[str]
    models: list[str]


def choices_of(cluster: Cluster) -> Choices:
    labels: dict[str, set[str]] = {FABRIC_LABEL: set(), RACK_LABEL: set()}
    there = MachineLabel.objects.filter(
        machine__cluster=cluster, machine__removed_at=None, key__in=labels
    ).exclude(value="")
    for key, value in there.values_list("key", "value").order_by().distinct():
        labels[key].add(value)
    used = Exists(RdmaPort.objects.filter(fabric=OuterRef("pk")))
    fabrics = set(Fabric.objects.filter(used, cluster=cluster).values_list("name", flat=True))
    return Choices(
        states=[(state.value, state.label) for state in MachineState],
        pools=list(Pool.objects.filter(cluster=cluster).order_by("slug").values_list("slug", flat=True)),
        fabrics=sorted(fabrics | labels[FABRIC_LABEL]),
        racks=sorted(labels[RACK_LABEL]),
        models=models_there(cluster),
    )
