"""What the machines' pages read: GPUs with their holders, where a machine is and how that is known."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, QuerySet
from django.urls import reverse
from django.utils import timezone

from common.errors import NotFound
from console.pages.scope import Scope
from console.pages.words import TIMES, SomeGpu, gpus_words
from machines.models import Gpu, Machine, MachineLabel
from machines.states import (
    FABRIC_LABEL,
    NVLINK_DOMAIN_LABEL,
    RACK_LABEL,
    TOPOLOGY_LABELS,
    Health,
    LinkLayer,
    MachineState,
)
from placement.phrases import plural
from runs.explaining.moments import HELD_BY_OTHERS, moment_words
from runs.models import Allocation, Assignment, RunAttempt
from runs.reasons import SOMEBODY_S_RUN

PLACES = {"fabric": FABRIC_LABEL, "rack": RACK_LABEL, "nvlink-domain": NVLINK_DOMAIN_LABEL}
TITLES = {"fabric": "Fabric", "rack": "Rack", "nvlink-domain": "NVLink domain"}


@dataclass(frozen=True, slots=True)
class Place:
    """Fabric, rack or NVLink domain of a machine, and how it is known."""

    slug: str
    value: str
    found: str
    """What the machine itself reports; shown beside a value that a person set."""
    how: str
    """`found: subnet manager 0x…c1, 8 ports`, `not found`; for a set value see `set_by`."""
    set_by: str
    set_at: datetime | None

    @property
    def title(self) -> str:
        return TITLES[self.slug]

    @property
    def key(self) -> str:
        return PLACES[self.slug]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a GPU; `address` is empty for what the reader may not see."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class GpuRow:
    gpu: Gpu
    holder: Holder | None

    @property
    def condition(self) -> str:
        """What is wrong with it; empty when nothing is."""
        gone = "" if self.gpu.present else "not found any more"
        evidence = f": {self.gpu.evidence}" if self.gpu.evidence else ""
        well = self.gpu.health == Health.HEALTHY and not evidence
        sick = "" if well else f"{self.gpu.health}{evidence}"
        return ", ".join(filter(None, [gone, sick]))

    @property
    def unheld(self) -> str:
        return "not used" if self.gpu.health == Health.FAULTY else "free"


@dataclass(frozen=True, slots=True)
class WorkerHere:
    name: str
    address: str
    state: str
    since: datetime
    gpus: str


@dataclass(frozen=True, slots=True)
class RunHere:
    """A run that has workers on a machine; `address` is empty for what the reader may not see."""

    name: str
    address: str
    gpus: int
    """On this machine."""
    elsewhere: int
    """Other machines of the same gang."""


def machines_for_display(machines: QuerySet[Machine]) -> QuerySet[Machine]:
    return machines.select_related("pool", "cluster__organization").prefetch_related(
        "gpus", "labels", "rdma_ports__fabric"
    )


def machine_find(scope: Scope, name: str) -> Machine:
    """The cluster's machine of this name, with all that its page shows. Raises NotFound."""
    found = machines_for_display(Machine.objects.filter(cluster=scope.cluster, name=name)).first()
    if found is None:
        raise NotFound
    return found


def gpus_present(machine: Machine) -> list[Gpu]:
    return [gpu for gpu in machine.gpus.all() if gpu.present]


def models_words(gpus: Iterable[SomeGpu]) -> str:
    """How many of each model, joined by commas."""
    counts = Counter(gpu.model for gpu in gpus)
    return ", ".join(f"{count} {TIMES} {model}" for model, count in counts.items())


def places_of(machine: Machine) -> dict[str, Place]:
    labels = {(label.key, label.found): label for label in machine.labels.all()}
    found = {
        "fabric": _fabric_found(machine),
        "rack": ("", "not found"),
        "nvlink-domain": _nvlink_found(machine),
    }
    return {slug: _place(slug, labels, *found[slug]) for slug in PLACES}


def _place(slug: str, labels: dict[tuple[str, bool], MachineLabel], found: str, how: str) -> Place:
    key = PLACES[slug]
    reported = labels.get((key, True))
    if reported is not None and reported.value:
        found, how = reported.value, "found: reported by the machine"
    said = labels.get((key, False))
    if said is None:
        return Place(slug, found, found, how, "", None)
    return Place(slug, said.value, found, how, said.set_by or "someone", said.set_at)


def _fabric_found(machine: Machine) -> tuple[str, str]:
    """The fabric of most of its InfiniBand ports, by their subnet managers."""
    ports = [port for port in machine.rdma_ports.all() if port.link_layer == LinkLayer.INFINIBAND]
    counts = Counter(port.fabric for port in ports if port.fabric)
    if not counts:
        return "", "not found" if ports else "not found: no InfiniBand port"
    [(fabric, count), *others] = counts.most_common()
    also = f", also on {', '.join(other.name for other, _ in others)}" if others else ""
    if fabric.guessed:
        return fabric.name, f"found, a guess: the subnet manager's GUID is not known{also}"
    return fabric.name, f"found: subnet manager {shortened(fabric.key)}, {plural(count, 'port')}{also}"


def shortened(key: str) -> str:
    """`0x…c1`: the end tells two subnet managers apart."""
    return f"{key[:2]}…{key[-2:]}" if len(key) > 8 else key  # noqa: PLR2004 - short ones stay whole


def _nvlink_found(machine: Machine) -> tuple[str, str]:
    domains = sorted({gpu.nvlink_domain for gpu in gpus_present(machine) if gpu.nvlink_domain})
    if len(domains) != 1:
        return "", "not found" if not domains else "not found: its GPUs are in several"
    return domains[0], "found: reported by its GPUs"


def labels_other(machine: Machine) -> list[MachineLabel]:
    """Labels beside those of topology; one that a person set hides one that was found."""
    ordered = sorted(machine.labels.all(), key=lambda label: (label.key, not label.found))
    by_key = {label.key: label for label in ordered if label.key not in TOPOLOGY_LABELS}
    return list(by_key.values())


def gpu_rows(machine: Machine, scope: Scope) -> list[GpuRow]:
    """By index; GPUs that are gone but still held too."""
    allocations = (
        Allocation.objects.filter(machine=machine, released_at=None, gpu__isnull=False)
        .select_related("assignment__worker", "assignment__attempt__run__workspace__organization")
        .order_by("gpu_id")
    )
    holders = {each.gpu_id: _holder(each.assignment, scope) for each in allocations}
    return [
        GpuRow(gpu, holders.get(gpu.id)) for gpu in machine.gpus.all() if gpu.present or gpu.id in holders
    ]


def _may_see(assignment: Assignment, scope: Scope) -> bool:
    return assignment.attempt.run.workspace_id in {each.id for each in scope.workspaces}


def _holder(assignment: Assignment, scope: Scope) -> Holder:
    if not _may_see(assignment, scope):
        return Holder(HELD_BY_OTHERS, "")
    return Holder(assignment.worker.name, _worker_address(assignment))


def _worker_address(assignment: Assignment) -> str:
    workspace = assignment.attempt.run.workspace
    parts: dict[str, Any] = {
        "organization": workspace.organization.slug,
        "workspace": workspace.slug,
        "worker": assignment.worker.name,
    }
    return reverse("worker", kwargs=parts)


def workers_here(machine: Machine, scope: Scope) -> list[WorkerHere]:
    """Workers that may still be there; what the reader may not see is neither named nor counted."""
    held = (
        Assignment.objects.held()
        .filter(machine=machine)
        .select_related("worker", "attempt__run__workspace__organization")
        .prefetch_related("allocations__gpu")
        .order_by("placed_at")
    )
    return [
        WorkerHere(
            name=each.worker.name,
            address=_worker_address(each),
            state=each.state,
            since=each.placed_at,
            gpus=gpus_words([held.gpu.index for held in each.allocations.all() if held.gpu]),
        )
        for each in held
        if _may_see(each, scope)
    ]


def runs_here(machine: Machine, scope: Scope) -> list[RunHere]:
    """Whole runs, as a drain stops them; what the reader may not see is neither named nor counted."""
    attempts = RunAttempt.objects.filter(assignments__machine=machine, assignments__gone_at=None)
    assignments = (
        Assignment.objects.held()
        .filter(attempt__in=attempts)
        .select_related("attempt__run__workspace__organization", "attempt__run__cluster")
        .annotate(gpus=Count("allocations__gpu", distinct=True))
        .order_by("attempt__run__name", "id")
    )
    runs: dict[int, list[Any]] = defaultdict(list)
    for each in assignments:
        runs[each.attempt.run_id].append(each)
    told = [_run_here(machine, members, scope) for members in runs.values()]
    return list(dict.fromkeys(told))


def _run_here(machine: Machine, members: list[Any], scope: Scope) -> RunHere:
    here = [each for each in members if each.machine_id == machine.id]
    if not _may_see(members[0], scope):
        return RunHere(SOMEBODY_S_RUN, "", 0, 0)
    run = members[0].attempt.run
    parts = (run.workspace.organization.slug, run.workspace.slug, run.cluster.slug, run.name)
    return RunHere(
        run.name, reverse("run", args=parts), sum(each.gpus for each in here), len(members) - len(here)
    )


def state_words(machine: Machine) -> tuple[str, datetime | None, str]:
    """Around a time: (`by ops`, when, `: “changing a cable”`)."""
    reason = f": “{machine.cordon_reason}”" if machine.cordon_reason else ""
    match machine.state:
        case MachineState.CORDONED:
            return f"by {machine.cordoned_by}", machine.cordoned_at, reason
        case MachineState.DRAINING:
            return f"by {machine.cordoned_by}", machine.draining_at, f"{reason}{_drain_words(machine)}"
        case MachineState.UNREACHABLE:
            return _unheard_words(machine)
        case MachineState.QUARANTINED:
            return "until an owner decides; since", machine.quarantined_at, ""
        case MachineState.CONTESTED:
            return "two agents use its credential; last heard", machine.two_agents_at, ""
        case _:
            return "takes work", None, ""


def _unheard_words(machine: Machine) -> tuple[str, datetime | None, str]:
    if machine.last_seen_at is None:
        return "its agent has not been heard yet; joined", machine.created_at, ""
    return "not heard from; noticed", machine.unreachable_at, ""


def _drain_words(machine: Machine) -> str:
    now = timezone.now()
    if machine.drain_until is None or machine.drain_until <= now:
        return ". What still ran here goes back to the queue"
    return f". What still runs here at {moment_words(machine.drain_until, now)} goes back to the queue"
