"""Drives of a cluster, for owners: where they lie on the machines, and which workspaces may use them."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from common.errors import Conflict, DomainError, Invalid
from console.pages.errors import page
from console.pages.forms import Field, Form, typed
from console.pages.scope import Scope, cluster_scope
from machines.drives import (
    READ,
    WRITE,
    DriveOrder,
    access_read,
    drive_change,
    drive_create,
    drive_data,
    drive_find,
    drive_remove,
    drives_of,
)
from machines.models import Cluster, DataVolume, Pool
from machines.states import DriveKind, Reach
from tenancy.models import Workspace
from tenancy.roles import Permission

ACCESS = (("", "nothing"), (READ, "read"), (WRITE, "read and write"))
ACCESS_PREFIX = "access-"
"""Begins the names of the fields that say what a workspace's runs may do."""

PATH = Field(
    "path", "Directory", hint="An absolute path; the agents of the machines must allow it (drive_roots)."
)
REACH = Field("reach", "Who reaches a drive on one machine", "select", choices=tuple(Reach.choices))


@page
@require_http_methods(["GET", "HEAD", "POST"])
def drives_page(request: HttpRequest, organization: str, cluster: str) -> HttpResponse:
    """All drives, and a form for another one."""
    scope = cluster_scope(request, organization, cluster, Permission.OWN)
    here = _cluster(scope)
    form = _add_form(here)
    if request.method == "POST":
        try:
            drive = drive_create(cluster=here, order=_order(request.POST.dict()), actor=scope.actor)
        except (Invalid, Conflict) as error:
            form = form.filled(request.POST.dict()).refused(error)
        else:
            messages.success(request, f"Drive {drive.name} is made.")
            return redirect(_address(scope))
    rows = [(drive, drive_data(drive)) for drive in drives_of(here).order_by("name")]
    context = {"scope": scope, "section": "machines", "rows": rows, "form": form}
    return render(request, "drives/list.html", context, status=422 if form.wrong else 200)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def drive_page(request: HttpRequest, organization: str, cluster: str, drive: str) -> HttpResponse:
    """Another place or other workspaces, or no drive any more."""
    scope, post = cluster_scope(request, organization, cluster, Permission.OWN), request.POST.dict()
    found = drive_find(_cluster(scope), drive)
    if request.method != "POST":
        return _drive_render(request, scope, found)
    if "remove" in post:
        drive_remove(drive=found, actor=scope.actor)
        messages.success(request, f"Drive {found.name} is gone; its files stay.")
        return redirect(_address(scope))
    reach = typed(post, "reach") if found.kind == DriveKind.MACHINE else None
    try:
        drive_change(
            drive=found, actor=scope.actor, path=typed(post, "path"), reach=reach, access=_access(post)
        )
    except Invalid as error:
        return _drive_render(request, scope, found, error)
    messages.success(request, f"Drive {found.name} is changed. Workers that run keep what they have.")
    return redirect(_address(scope))


def _drive_render(
    request: HttpRequest, scope: Scope, drive: DataVolume, error: DomainError | None = None
) -> HttpResponse:
    data = drive_data(drive)
    fields = (PATH, *((REACH,) if drive.kind == DriveKind.MACHINE else ()), *_access_fields(drive.cluster))
    form = Form("drive", "Save", fields).filled({"path": drive.path, "reach": drive.reach, **_filled(data)})
    if error is not None:
        form = form.filled(request.POST.dict()).refused(error)
    context = {
        "scope": scope,
        "section": "machines",
        "name": drive.name,
        "form": form,
        "removal": "Its files stay. Workers that run keep it. Runs that wait and name it go on waiting.",
        "crumb": f"Drives of {drive.cluster.slug}",
        "back": _address(scope),
    }
    return render(request, "workspace/edit.html", context, status=422 if form.wrong else 200)


def _cluster(scope: Scope) -> Cluster:
    assert scope.cluster is not None  # noqa: S101 - for mypy: cluster_scope sets it
    return scope.cluster


def _address(scope: Scope) -> str:
    return reverse("drives", args=[scope.organization.slug, _cluster(scope).slug])


def _add_form(cluster: Cluster) -> Form:
    pools = Pool.objects.filter(cluster=cluster).order_by("slug").values_list("slug", flat=True)
    kinds = (
        (DriveKind.SHARED.value, "the same on all machines (a shared file system)"),
        (DriveKind.MACHINE.value, "on one machine"),
    )
    choices = (("", "all machines of the cluster"), *((pool, f"machines of pool {pool}") for pool in pools))
    fields = (
        Field("name", "Name", hint="Runs name it in datavolume_refs: letters, digits and -."),
        Field("kind", "Kind", "select", choices=kinds),
        PATH,
        Field("pool", "A shared drive is on", "select", choices=choices),
        Field(
            "machine", "A drive on one machine is on", hint="The machine's name; empty for a shared drive."
        ),
        REACH,
        *_access_fields(cluster),
    )
    return Form("drive", "Make drive", fields)


def _access_fields(cluster: Cluster) -> tuple[Field, ...]:
    workspaces = Workspace.objects.filter(organization=cluster.organization_id).order_by("slug")
    return tuple(
        Field(f"{ACCESS_PREFIX}{slug}", f"Runs of {slug} may", "select", choices=ACCESS)
        for slug in workspaces.values_list("slug", flat=True)
    )


def _filled(data: dict[str, dict[str, str]]) -> dict[str, str]:
    return {f"{ACCESS_PREFIX}{workspace}": word for workspace, word in data["workspaces"].items()}


def _access(post: dict[str, str]) -> dict[str, bool]:
    """Workspaces that were given something, and whether they may only read."""
    words = {
        name.removeprefix(ACCESS_PREFIX): word
        for name, word in post.items()
        if name.startswith(ACCESS_PREFIX) and word in (READ, WRITE)
    }
    return access_read(words)


def _order(post: dict[str, str]) -> DriveOrder:
    return DriveOrder(
        name=typed(post, "name"),
        kind=typed(post, "kind"),
        path=typed(post, "path"),
        pool=typed(post, "pool") or None,
        machine=typed(post, "machine") or None,
        reach=typed(post, "reach") or Reach.LOCAL,
        access=_access(post),
    )
