"""Drives of a cluster, for owners: where they lie on the machines, and which workspaces may use them."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from common.errors import Conflict, Invalid
from console.pages.editing import Editing, edit_page
from console.pages.errors import page
from console.pages.forms import Field, Form, typed
from console.pages.machine_filters import Filters
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
    here = scope.cluster_here
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
    context = {
        "scope": scope,
        "section": "machines",
        "view": "drives",
        "filters": Filters(),
        "rows": rows,
        "form": form,
    }
    return render(request, "drives/list.html", context, status=422 if form.wrong else 200)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def drive_page(request: HttpRequest, organization: str, cluster: str, drive: str) -> HttpResponse:
    """Another place or other workspaces, or no drive any more."""
    scope = cluster_scope(request, organization, cluster, Permission.OWN)
    found = drive_find(scope.cluster_here, drive)

    def change(post: dict[str, str]) -> str:
        reach = typed(post, "reach") if found.kind == DriveKind.MACHINE else None
        drive_change(
            drive=found, actor=scope.actor, path=typed(post, "path"), reach=reach, access=_access(post)
        )
        return f"Drive {found.name} is changed. Workers that run keep what they have."

    def remove() -> str:
        drive_remove(drive=found, actor=scope.actor)
        return f"Drive {found.name} is gone; its files stay."

    editing = Editing(
        name=found.name,
        form=_edit_form(found),
        removal="Its files stay. Workers that run keep it. Runs that wait and name it go on waiting.",
        change=change,
        remove=remove,
        section="machines",
        crumb=f"Drives of {scope.cluster_here.slug}",
        back=_address(scope),
    )
    return edit_page(request, scope, editing)


def _address(scope: Scope) -> str:
    return reverse("drives", args=[scope.organization.slug, scope.cluster_here.slug])


def _edit_form(drive: DataVolume) -> Form:
    fields = (PATH, *((REACH,) if drive.kind == DriveKind.MACHINE else ()), *_access_fields(drive.cluster))
    access = {f"{ACCESS_PREFIX}{slug}": word for slug, word in drive_data(drive)["workspaces"].items()}
    return Form("drive", "Save", fields).filled({"path": drive.path, "reach": drive.reach, **access})


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
