"""What a machine's page tells of its health: what people say, what runs met there, what has changed."""

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse
from django.utils import timezone

from console.pages.scope import Scope
from machines.models import Gpu, HealthEvent, HealthOverride, Machine, RdmaPort
from machines.overrides import MACHINE, gpu_subject, port_subject
from runs.explaining.moments import moment_words
from runs.lemons import Counted, failures_counted
from runs.reasons import SOMEBODY_S_RUN
from tenancy.models import Workspace

EVENTS_SHOWN = 50
"""Changes of health on a machine's page; all but the newest EVENTS_AT_ONCE are folded away."""
EVENTS_AT_ONCE = 5


@dataclass(frozen=True, slots=True)
class Said:
    """What an administrator says of the health of something, with what its agent says."""

    name: str
    override: HealthOverride
    until: str
    reported: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Attempts of a run that failed on a machine; `address` is empty for what one can't or may not look at."""

    name: str
    address: str
    text: str
    times: int
    at: datetime
    counts: float
    """Of the lemon score."""


def health_events(machine: Machine) -> list[HealthEvent]:
    """Newest first."""
    return list(HealthEvent.objects.filter(machine=machine).order_by("-at", "-id")[:EVENTS_SHOWN])


def overrides_said(machine: Machine) -> list[Said]:
    """What counts instead of what the machine's agent says."""
    reported = {MACHINE: _reported(machine)}
    names = {MACHINE: "The whole machine"}
    for gpu in machine.gpus.all():
        reported[gpu_subject(gpu.uuid)] = _reported(gpu)
        names[gpu_subject(gpu.uuid)] = f"GPU {gpu.index}"
    for port in machine.rdma_ports.all():
        reported[port_subject(port.device, port.port)] = _reported(port)
    return [
        Said(
            names.get(said.subject, said.subject.partition(" ")[2]),
            said,
            until_words(said),
            reported.get(said.subject, "nothing: it is gone"),
        )
        for said in HealthOverride.objects.filter(machine=machine)
    ]


def _reported(row: Machine | Gpu | RdmaPort) -> str:
    evidence = f": {row.reported_evidence}" if row.reported_evidence else ""
    return f"{row.reported_health}{evidence}"


def until_words(said: HealthOverride) -> str:
    return moment_words(said.until, timezone.now())


def failures_told(machine: Machine, scope: Scope) -> list[Failed]:
    """What runs that the reader may not see met is told without their name."""
    visible = {each.id: each for each in scope.workspaces}
    failures = failures_counted([machine], timezone.now()).get(machine.id, [])
    return [_failed(each, visible) for each in failures]


def _failed(counted: Counted, visible: dict[int, Workspace]) -> Failed:
    failure, run = counted.failure, counted.failure.run
    workspace = visible.get(failure.workspace_id)
    if workspace is None:
        kind = failure.get_kind_display()
        return Failed(SOMEBODY_S_RUN, "", kind, failure.times, failure.at, counted.counts)
    parts = (workspace.organization.slug, workspace.slug, run.cluster.slug, run.name) if run else ()
    address = reverse("run", args=parts) if parts else ""
    return Failed(failure.run_name, address, failure.text, failure.times, failure.at, counted.counts)
