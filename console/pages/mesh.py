"""The mesh network of a cluster: its range, who has a subnet of it, and why others are not on it."""

from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from common.errors import Conflict, Invalid
from console.pages.errors import page
from console.pages.forms import Field, Form, typed
from console.pages.machine_filters import Filters
from console.pages.scope import Scope, cluster_scope
from machines.mesh import mesh_range_set, mesh_subnet
from machines.models import Cluster, Machine
from runs.desired import mesh_beside
from runs.models import Assignment
from tenancy.roles import Permission
from wire.mesh import subnets_in

MOST_SHOWN = 100
"""Machines that the page names for not being on the mesh."""
RANGE = Field(
    "mesh_range",
    "Range",
    hint="A private IPv4 range apart from the machines' own networks, a /20 or larger: each machine gets a /24 of it.",
)


@dataclass(frozen=True, slots=True)
class MachineMesh:
    """What a machine's page tells of its mesh."""

    subnet: str
    peers: list[Machine]
    """The machines with which it shares a gang now. Operators see runs of all workspaces; others are shown none."""


def machine_mesh(machine: Machine, scope: Scope) -> MachineMesh:
    told = scope.may_operate and machine.on_mesh
    held = Assignment.objects.held().filter(machine=machine) if told else []
    peers = [each for each in mesh_beside(held) if each.id != machine.id]
    return MachineMesh(mesh_subnet(machine), peers)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def mesh_page(request: HttpRequest, organization: str, cluster: str) -> HttpResponse:
    """For operators to look at; owners set the range."""
    need = Permission.OWN if request.method == "POST" else Permission.OPERATE_MACHINES
    scope = cluster_scope(request, organization, cluster, need)
    here = scope.cluster_here
    form = Form("mesh", "Set range", (RANGE,)).filled({"mesh_range": here.mesh_range})
    if request.method == "POST":
        post = request.POST.dict()
        try:
            mesh_range_set(cluster=here, mesh_range=typed(post, "mesh_range"), actor=scope.actor)
        except (Invalid, Conflict) as error:
            form = _refused(form.filled(post), error)
        else:
            messages.success(request, f"The mesh's range is {typed(post, 'mesh_range')}.")
            return redirect("mesh", scope.organization.slug, here.slug)
    context = {
        "scope": scope,
        "section": "machines",
        "view": "mesh",
        "filters": Filters(),
        "form": form,
        **_told(here),
    }
    return render(request, "machines/mesh.html", context, status=422 if form.wrong else 200)


def _told(cluster: Cluster) -> dict[str, Any]:
    machines = Machine.objects.filter(cluster=cluster).order_by("name")
    flawed = machines.exclude(mesh_flaw="")
    count = flawed.count()
    return {
        "range": cluster.mesh_range,
        "room": subnets_in(cluster.mesh_range),
        "given": machines.filter(mesh_number__isnull=False).exclude(mesh_key="").count(),
        "without": machines.filter(mesh_key="", mesh_flaw="").count(),
        "flawed": flawed[:MOST_SHOWN],
        "more": max(0, count - MOST_SHOWN),
    }


def _refused(form: Form, error: Invalid | Conflict) -> Form:
    told = tuple(replace(each, path="mesh_range") for each in error.errors)
    return form.refused(type(error)(error.code, error.message, errors=told))
