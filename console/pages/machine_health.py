"""What administrators say of a machine's health, and which of its failures they forget."""

from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from common.errors import Invalid
from console.numbers import number_read
from console.pages import machine_facts as facts
from console.pages.errors import page
from console.pages.machine_actions import action, reason_typed
from console.pages.machine_page import machine_address
from console.pages.machine_troubles import until_words
from console.pages.scope import Scope, cluster_scope
from machines import overrides
from machines.models import Machine
from machines.states import Health
from placement.phrases import capitalized
from runs.lemons import failures_forget
from tenancy.roles import Permission

LASTS = (
    (60 * 60, "1 hour"),
    (4 * 60 * 60, "4 hours"),
    (24 * 60 * 60, "1 day"),
    (3 * 24 * 60 * 60, "3 days"),
    (7 * 24 * 60 * 60, "1 week"),
    (30 * 24 * 60 * 60, "30 days"),
)
"""For how long what is said counts, in seconds and in words."""
LASTS_USUAL = 24 * 60 * 60


def subjects_of(machine: Machine) -> list[tuple[str, str]]:
    """What a health can be said of, with its name for people."""
    gpus = [
        (overrides.gpu_subject(gpu.uuid), f"GPU {gpu.index} ({gpu.health})")
        for gpu in facts.gpus_present(machine)
    ]
    ports = [
        (overrides.port_subject(port.device, port.port), f"port {port} ({port.health})")
        for port in machine.rdma_ports.all()
    ]
    return [(overrides.MACHINE, f"the whole machine ({machine.health})"), *gpus, *ports]


def _shows(_: HttpRequest, __: Scope, machine: Machine) -> dict[str, Any]:
    shown: dict[str, Any] = {"subjects": subjects_of(machine), "healths": Health.values}
    return {**shown, "lasts": LASTS, "usual": LASTS_USUAL}


@action("health", shows=_shows)
def machine_health(request: HttpRequest, scope: Scope, machine: Machine) -> str:
    seconds = number_read(request.POST.get("lasts", ""), int(overrides.LONGEST.total_seconds()))
    if seconds is None:
        raise Invalid("lasts", "Choose for how long it counts.")
    subject = request.POST.get("subject", "")
    if subject not in dict(subjects_of(machine)):
        raise Invalid("subject", f"Choose what of {machine.name} it is.")
    said = overrides.health_override(
        machine=machine,
        subject=subject,
        health=request.POST.get("health", ""),
        reason=reason_typed(request),
        lasts=timedelta(seconds=seconds),
        actor=scope.actor,
    )
    name = overrides.subject_name(machine, subject)
    return f"{capitalized(name)} of {machine.name} counts as {said.health} until {until_words(said)}."


@page
@require_POST
def machine_health_end(request: HttpRequest, organization: str, cluster: str, machine: str) -> HttpResponse:
    """What the agent says counts again."""
    scope = cluster_scope(request, organization, cluster, Permission.OPERATE_MACHINES)
    found = facts.machine_find(scope, machine)
    subject = request.POST.get("subject", "")
    if not subject:
        raise Invalid("subject", f"Choose what of {found.name} it is.")
    overrides.health_override_end(machine=found, subject=subject, actor=scope.actor)
    messages.success(request, f"What the agent of {found.name} says counts again.")
    return redirect(machine_address(found))


@action("forget")
def machine_forget(request: HttpRequest, scope: Scope, machine: Machine) -> str:  # noqa: ARG001 - it asks for nothing
    failures_forget(machine=machine, actor=scope.actor)
    return f"The failures on {machine.name} are forgotten: runs use it like any other."
