"""A machine's page: what it has, who uses it, where it is; labels are edited in place."""

import json
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from common.errors import Invalid
from console.pages import machine_facts as facts
from console.pages.errors import is_fragment, page
from console.pages.scope import Scope, cluster_scope
from console.pages.words import gpu_counts
from machines import services
from machines.models import Machine
from tenancy.roles import Permission


@page
@require_safe
def machine_page(request: HttpRequest, organization: str, cluster: str, machine: str) -> HttpResponse:
    scope = cluster_scope(request, organization, cluster)
    found = facts.machine_find(scope, machine)
    edit = request.GET.get("edit", "") if scope.may_operate else ""
    if is_fragment(request) and (slug := edit or request.GET.get("place", "")) in facts.PLACES:
        context = {**_place_context(scope, found, slug), "editing": edit == slug, "focus": edit != slug}
        return render(request, "machines/machine.html#place", context)
    context = _context(scope, found)
    if is_fragment(request):
        return render(request, "machines/machine.html#live", {**context, "oob": True})
    return render(request, "machines/machine.html", {**context, "edit": edit})


def _context(scope: Scope, machine: Machine) -> dict[str, Any]:
    rows = facts.gpu_rows(machine, scope)
    held = frozenset(row.gpu.id for row in rows if row.holder)
    before, at, after = facts.state_words(machine)
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
        "state_before": before,
        "state_at": at,
        "state_after": after,
    }


def _place_context(scope: Scope, machine: Machine, slug: str) -> dict[str, Any]:
    return {"scope": scope, "machine": machine, "place": facts.places_of(machine)[slug]}


@page
@require_POST
def machine_label(request: HttpRequest, organization: str, cluster: str, machine: str) -> HttpResponse:
    """Sets a label, or takes back what was set; the page, or the one line of it that changed, comes back."""
    scope = cluster_scope(request, organization, cluster, Permission.OPERATE_MACHINES)
    found = facts.machine_find(scope, machine)
    slug, typed = request.POST.get("place", ""), request.POST.get("value", "").strip()
    key = facts.PLACES.get(slug) or request.POST.get("key", "").strip()
    try:
        if "unset" in request.POST:
            services.machine_label_unset(machine=found, key=key, actor=scope.actor)
        else:
            services.machine_label_set(machine=found, key=key, value=typed, actor=scope.actor)
    except Invalid as error:
        return _label_refused(request, scope, found, slug, key, typed, error)
    found = facts.machine_find(scope, machine)
    said = _said(found, slug, key)
    if is_fragment(request) and slug in facts.PLACES:
        context = {**_place_context(scope, found, slug), "editing": False, "focus": True}
        response = render(request, "machines/machine.html#place", context)
        response.headers["HX-Trigger"] = json.dumps({"astraeus:say": said})
        return response
    messages.success(request, said)
    return redirect(machine_address(found))


def _label_refused(
    request: HttpRequest, scope: Scope, machine: Machine, slug: str, key: str, typed: str, error: Invalid
) -> HttpResponse:
    told = {"typed": typed, "problem": error.message}
    if is_fragment(request) and slug in facts.PLACES:
        context = {**_place_context(scope, machine, slug), "editing": True, **told}
        return render(request, "machines/machine.html#place", context, status=error.status)
    context = {**_context(scope, machine), "edit": slug or "label", "typed_key": key, **told}
    return render(request, "machines/machine.html", context, status=error.status)


def _said(machine: Machine, slug: str, key: str) -> str:
    if slug not in facts.PLACES:
        value = {label.key: label.value for label in facts.labels_other(machine)}.get(key)
        return f"Label {key} is gone." if value is None else f"Label {key} is {value or 'empty'}."
    place = facts.places_of(machine)[slug]
    return f"{place.title} of {machine.name} is {place.value or 'not known'}."


@page
@require_http_methods(["GET", "HEAD", "POST"])
def machine_cordon(request: HttpRequest, organization: str, cluster: str, machine: str) -> HttpResponse:
    scope = cluster_scope(request, organization, cluster, Permission.OPERATE_MACHINES)
    found = facts.machine_find(scope, machine)
    if request.method == "POST":
        reason = request.POST.get("reason", "").strip()
        services.machine_cordon(machine=found, actor=scope.actor, reason=reason)
        messages.success(request, f"{found.name} is cordoned: it takes no new work.")
        return redirect(machine_address(found))
    return _confirm(request, scope, found, "cordon")


@page
@require_http_methods(["GET", "HEAD", "POST"])
def machine_uncordon(request: HttpRequest, organization: str, cluster: str, machine: str) -> HttpResponse:
    scope = cluster_scope(request, organization, cluster, Permission.OPERATE_MACHINES)
    found = facts.machine_find(scope, machine)
    if request.method == "POST":
        services.machine_uncordon(machine=found, actor=scope.actor)
        messages.success(request, f"{found.name} takes work again.")
        return redirect(machine_address(found))
    return _confirm(request, scope, found, "uncordon")


def _confirm(request: HttpRequest, scope: Scope, machine: Machine, action: str) -> HttpResponse:
    context = {
        "scope": scope,
        "section": "machines",
        "machine": machine,
        "action": action,
        "back": machine_address(machine),
    }
    return render(request, "machines/confirm.html", context)


def machine_address(machine: Machine) -> str:
    """`machine` with its cluster and organization loaded."""
    parts = {
        "organization": machine.cluster.organization.slug,
        "cluster": machine.cluster.slug,
        "machine": machine.name,
    }
    return reverse("machine", kwargs=parts)
