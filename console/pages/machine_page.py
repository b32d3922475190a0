"""A machine's page: what it has, who uses it, where it is."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from console.pages import machine_facts as facts
from console.pages import machine_troubles as troubles
from console.pages.errors import is_fragment, page
from console.pages.machine_beside import runs_beside
from console.pages.machine_cells import CHOSEN, FITS, UNJUDGED
from console.pages.machine_for_run import for_run
from console.pages.mesh import machine_mesh
from console.pages.scope import Scope, cluster_scope
from console.pages.words import gpu_counts
from console.versions import CURRENT, agent_is_old
from machines.channel import RIVALS, starts_withheld
from machines.models import Machine
from runs.lemons import LEMON_FROM

PANEL_WORDS = {FITS: "Fits", CHOSEN: "Chosen for", UNJUDGED: "Not judged yet for", "": "Not for"}


@page
@require_safe
def machine_page(request: HttpRequest, organization: str, cluster: str, machine: str) -> HttpResponse:
    """The page; of it only the line of a place (`?place=`, `?edit=`), the map's panel, or what is live."""
    scope = cluster_scope(request, organization, cluster)
    found = facts.machine_find(scope, machine)
    edit = request.GET.get("edit", "") if scope.may_operate else ""
    if is_fragment(request) and (slug := edit or request.GET.get("place", "")) in facts.PLACES:
        context = {"scope": scope, "machine": found, "place": facts.places_of(found)[slug], "slug": slug}
        context |= {"editing": edit == slug, "focus": edit != slug}
        return render(request, "machines/machine.html#place", context)
    context = machine_context(scope, found)
    if is_fragment(request) and "panel" in request.GET:
        context |= {"beside": runs_beside(found, scope), **_panel_for(request, scope, found)}
        return render(request, "machines/panel.html", context)
    if is_fragment(request):
        return render(request, "machines/machine.html#live", {**context, "oob": True})
    return render(request, "machines/machine.html", {**context, "edit": edit})


def _panel_for(request: HttpRequest, scope: Scope, machine: Machine) -> dict[str, Any]:
    """What the machine is to the run that the map is shown for."""
    asked = for_run(scope, request.GET.get("for", ""))
    if asked is None:
        return {}
    mark = asked.mark(machine.name)
    return {"asked": asked, "asked_mark": mark, "asked_word": PANEL_WORDS[mark.kind]}


def machine_context(scope: Scope, machine: Machine) -> dict[str, Any]:
    rows = facts.gpu_rows(machine, scope)
    held = frozenset(row.gpu.id for row in rows if row.holder)
    before, at, after = facts.state_words(machine)
    events = troubles.health_events(machine)
    failures = troubles.failures_told(machine, scope)
    score = sum(each.counts for each in failures)
    return {
        "scope": scope,
        "section": "machines",
        "machine": machine,
        "gpus": rows,
        "held": held,
        "counts": gpu_counts(facts.gpus_present(machine), held),
        "models": facts.models_words(facts.gpus_present(machine)),
        "ports": list(machine.rdma_ports.all()),
        "places": list(facts.places_of(machine).values()),
        "labels": facts.labels_other(machine),
        "workers": facts.workers_here(machine, scope),
        "events": events[: troubles.EVENTS_AT_ONCE],
        "older_events": events[troubles.EVENTS_AT_ONCE :],
        "mesh": machine_mesh(machine, scope),
        "rivals": RIVALS if starts_withheld(machine) else "",
        "said": troubles.overrides_said(machine),
        "failures": failures,
        "score": score,
        "lemon": score >= LEMON_FROM,
        "old_agent": agent_is_old(machine.agent_version),
        "agent_current": CURRENT,
        "checks": machine.checks,
        "state_before": before,
        "state_at": at,
        "state_after": after,
    }


def machine_address(machine: Machine) -> str:
    """`machine` with its cluster and organization loaded."""
    parts = {
        "organization": machine.cluster.organization.slug,
        "cluster": machine.cluster.slug,
        "machine": machine.name,
    }
    return reverse("machine", kwargs=parts)
