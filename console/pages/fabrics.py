"""Fabrics of a cluster: how each was found, and what operators make of it: a name, and whether it is for storage."""

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from common.errors import Conflict, Invalid, NotFound
from console.pages.errors import page
from console.pages.machine_facts import shortened
from console.pages.machine_filters import Filters
from console.pages.scope import Scope, cluster_scope
from machines.fabric_changes import fabric_change
from machines.models import Fabric, MachineLabel
from machines.states import FABRIC_LABEL
from runs.machine_preview import Preview, fabric_preview
from tenancy.roles import Permission


@dataclass(frozen=True, slots=True)
class FabricRow:
    fabric: Fabric
    machines: int
    ports: int
    how: str
    labelled: int
    """Machines that a label puts here."""


@page
@require_safe
def fabric_list(request: HttpRequest, organization: str, cluster: str) -> HttpResponse:
    scope = cluster_scope(request, organization, cluster)
    found = Fabric.objects.filter(cluster=scope.cluster_here).order_by("name")
    counted = found.annotate(port_count=Count("ports"), machine_count=Count("ports__machine", distinct=True))
    labelled = _labelled(scope)
    rows = [
        FabricRow(each, each.machine_count, each.port_count, _how(each), labelled.pop(each.name, 0))
        for each in counted
    ]
    context = {
        "scope": scope,
        "section": "machines",
        "view": "fabrics",
        "filters": Filters(),
        "rows": rows,
        "labels": sorted(labelled.items()),
    }
    return render(request, "machines/fabrics.html", context)


def _labelled(scope: Scope) -> dict[str, int]:
    """Machines by the fabric that a label names."""
    labels = MachineLabel.objects.filter(
        machine__cluster=scope.cluster_here, machine__removed_at=None, key=FABRIC_LABEL
    ).exclude(value="")
    counted = labels.values_list("value").annotate(count=Count("machine", distinct=True)).order_by()
    return dict(counted)


def _how(fabric: Fabric) -> str:
    """What it was found by."""
    if fabric.guessed:
        return "by subnet prefix and manager LID: its subnet manager's GUID is not known"
    return f"subnet manager {shortened(fabric.key)}"


@page
@require_http_methods(["GET", "HEAD", "POST"])
def fabric_rename(request: HttpRequest, organization: str, cluster: str, fabric: str) -> HttpResponse:
    scope, found = _found(request, organization, cluster, fabric)
    typed = request.POST.get("name", found.name).strip()
    if request.method != "POST":
        return _asked(request, scope, found, "rename", {"typed": typed})
    try:
        fabric_change(fabric=found, name=typed, actor=scope.actor)
    except (Invalid, Conflict) as error:
        told = {"typed": typed, "problem": error.message}
        return _asked(request, scope, found, "rename", told, status=error.status)
    messages.success(request, f"{found.name} is named {typed} now.")
    return redirect("fabrics", scope.organization.slug, scope.cluster_slug)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def fabric_use(request: HttpRequest, organization: str, cluster: str, fabric: str) -> HttpResponse:
    """Keeps it for storage, or gives it back to runs. The question tells what that would do to them."""
    scope, found = _found(request, organization, cluster, fabric)
    storage = not found.storage
    if request.method != "POST":
        return _asked(request, scope, found, "use", {"preview": _preview(scope, found, storage=storage)})
    # What was asked is done, also when somebody else has changed it meanwhile.
    storage = request.POST.get("storage") == "1"
    fabric_change(fabric=found, storage=storage, actor=scope.actor)
    messages.success(request, _use_said(found, storage=storage))
    return redirect("fabrics", scope.organization.slug, scope.cluster_slug)


def _use_said(fabric: Fabric, *, storage: bool) -> str:
    if storage:
        return f"{fabric.name} is kept for storage: runs don't use its ports."
    return f"Runs use {fabric.name} again."


def _preview(scope: Scope, fabric: Fabric, *, storage: bool) -> Preview:
    def change() -> None:
        fabric_change(fabric=fabric, storage=storage, actor=scope.actor)

    return fabric_preview(fabric, change, visible={each.id for each in scope.workspaces})


def _found(request: HttpRequest, organization: str, cluster: str, fabric: str) -> tuple[Scope, Fabric]:
    scope = cluster_scope(request, organization, cluster, Permission.OPERATE_MACHINES)
    fabrics = Fabric.objects.select_related("cluster__organization")
    found = fabrics.filter(cluster=scope.cluster_here, name=fabric).first()
    if found is None:
        raise NotFound
    return scope, found


def _asked(
    request: HttpRequest,
    scope: Scope,
    fabric: Fabric,
    action: str,
    told: dict[str, Any],
    *,
    status: int = 200,
) -> HttpResponse:
    context = {"scope": scope, "section": "machines", "fabric": fabric, "action": action, **told}
    return render(request, "machines/fabric.html", context, status=status)
