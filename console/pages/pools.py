"""Pools of a cluster: which machines are in them, and, for owners, which workspaces may use them, up to where."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from common.errors import Conflict, DomainError, FieldError, Invalid
from console.numbers import number_read
from console.pages.errors import page
from console.pages.forms import Field, Form, typed
from console.pages.machine_filters import Filters
from console.pages.scope import Scope, cluster_scope
from machines.models import Cluster, Machine, Pool
from machines.pools import (
    MOST_GPUS,
    PoolOrder,
    Share,
    machines_move,
    pool_change,
    pool_create,
    pool_get,
    pool_remove,
    pools_of,
    shares_of,
)
from placement.phrases import and_list
from runs.machine_preview import Preview, machines_preview
from runs.pool_preview import pool_preview
from runs.pool_use import PoolSize, pool_sizes, shares_words
from tenancy.models import Workspace
from tenancy.roles import Permission
from wire.names import shown

MAY = (("", "no"), ("yes", "yes"))
PATHS = {"metadata.name": "name", "spec.title": "title"}
"""Where the service says that something is wrong → the field of the form."""
MOST_MOVED = 200
"""Machines that are moved in one go."""
MOST_SHOWN = 100
"""Machines of a pool that its page names; the list of machines shows all."""


@dataclass(frozen=True, slots=True)
class PoolRow:
    pool: Pool
    size: PoolSize
    workspaces: str


@page
@require_http_methods(["GET", "HEAD", "POST"])
def pools_page(request: HttpRequest, organization: str, cluster: str) -> HttpResponse:
    """All pools, and for owners a form for another one."""
    need = Permission.OWN if request.method == "POST" else Permission.READ_MACHINES
    scope = cluster_scope(request, organization, cluster, need)
    here = scope.cluster_here
    form = Form("pool", "Make pool", (*_names(""), *_share_fields(here)))
    if request.method == "POST":
        post = request.POST.dict()
        try:
            order = PoolOrder(typed(post, "name"), typed(post, "title"), _shares(post))
            pool = pool_create(cluster=here, order=order, actor=scope.actor)
        except (Invalid, Conflict) as error:
            form = _refused(form.filled(post), error)
        else:
            messages.success(request, f"Pool {pool.slug} is made. Machines join it, or are moved into it.")
            return redirect(_address(scope))
    sizes = pool_sizes(here)
    context = {
        "scope": scope,
        "section": "machines",
        "view": "pools",
        "filters": Filters(),
        "rows": [
            PoolRow(each, sizes.get(each.slug, PoolSize()), shares_words(shares_of(each)))
            for each in pools_of(here)
        ],
        "form": form,
    }
    return render(request, "pools/list.html", context, status=422 if form.wrong else 200)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def pool_page(request: HttpRequest, organization: str, cluster: str, pool: str) -> HttpResponse:
    """One pool: its machines for operators; its name, its workspaces and its end for owners.

    A change that affects runs is asked back for once, unless the form shows its preview already.
    """
    need = Permission.OWN if request.method == "POST" else Permission.OPERATE_MACHINES
    scope, found = _found(request, organization, cluster, pool, need)
    form = _edit_form(found)
    if request.method != "POST":
        return _shown(request, scope, found, {"form": form})
    post = request.POST.dict()
    if "remove" in post:
        return _removed(request, scope, found, form)
    try:
        change = _PoolEdit(scope, found, typed(post, "name"), typed(post, "title"), _shares(post))
        if post.get("seen") != change.mark and (preview := change.preview()).affects:
            asked = replace(form.filled(post), submit="Save anyway")
            return _shown(request, scope, found, {"form": asked, "change": preview, "mark": change.mark})
        change.save()
    except (Invalid, Conflict) as error:
        return _shown(request, scope, found, {"form": _refused(form.filled(post), error)}, status=422)
    messages.success(request, f"Pool {change.name} is changed. What runs there goes on.")
    return redirect(_address(scope, change.name))


@dataclass(frozen=True, slots=True)
class _PoolEdit:
    """A pool as somebody wants it."""

    scope: Scope
    pool: Pool
    name: str
    title: str
    workspaces: dict[str, Share]

    @property
    def mark(self) -> str:
        """The same for the same shares: only they concern runs."""
        told = (
            f"{slug} {'' if each.gpu_cap is None else each.gpu_cap} {each.guaranteed_gpus}"
            for slug, each in sorted(self.workspaces.items())
        )
        return ", ".join(told)

    def save(self) -> None:
        pool_change(
            pool=self.pool,
            actor=self.scope.actor,
            name=self.name,
            title=self.title,
            workspaces=self.workspaces,
        )

    def preview(self) -> Preview:
        return pool_preview(self.pool, self.save, visible={each.id for each in self.scope.workspaces})


def _removed(request: HttpRequest, scope: Scope, pool: Pool, form: Form) -> HttpResponse:
    try:
        pool_remove(pool=pool, actor=scope.actor)
    except Conflict as error:
        return _shown(request, scope, pool, {"form": form, "kept": error.message}, status=error.status)
    messages.success(request, f"Pool {pool.slug} is removed.")
    return redirect(_address(scope))


@page
@require_POST
def pool_machines(request: HttpRequest, organization: str, cluster: str, pool: str) -> HttpResponse:
    """Puts machines into the pool. What affects runs is told first, unless the form shows its preview already."""
    scope, found = _found(request, organization, cluster, pool, Permission.OPERATE_MACHINES)
    names = request.POST.get("machines", "").replace(",", " ").split()
    told: dict[str, Any] = {"form": _edit_form(found), "typed": " ".join(names)}
    try:
        machines = _machines(scope.cluster_here, names)
        if request.POST.get("seen") != told["typed"]:
            told["preview"] = machines_preview(
                machines,
                lambda: machines_move(machines=machines, pool=found.slug, actor=scope.actor),
                visible={each.id for each in scope.workspaces},
            )
            if told["preview"].affects:
                return _shown(request, scope, found, {**told, "mark": told["typed"]})
        machines_move(machines=machines, pool=found.slug, actor=scope.actor)
    except Invalid as error:
        return _shown(request, scope, found, {**told, "problem": error.message}, status=error.status)
    verb = "is" if len(machines) == 1 else "are"
    messages.success(
        request, f"{and_list([each.name for each in machines])} {verb} in pool {found.slug} now."
    )
    return redirect(_address(scope, found.slug))


def _machines(cluster: Cluster, names: list[str]) -> list[Machine]:
    """Raises Invalid for a name that no machine has, and for none or too many."""
    if not names:
        raise Invalid("machines", "Name the machines that are to be in this pool.")
    if len(names) > MOST_MOVED:
        raise Invalid("machines", f"{len(names):,} names are too many at once. Name {MOST_MOVED} at most.")
    there = Machine.objects.filter(cluster=cluster, name__in=names).select_related("cluster__organization")
    found = {machine.name: machine for machine in there}
    for name in names:
        if name not in found:
            raise Invalid("machines", f"There is no machine {shown(name)} in {cluster.slug}.")
    return [found[name] for name in dict.fromkeys(names)]


def _found(
    request: HttpRequest, organization: str, cluster: str, pool: str, need: Permission
) -> tuple[Scope, Pool]:
    scope = cluster_scope(request, organization, cluster, need)
    return scope, pool_get(scope.cluster_here, pool)


def _shown(
    request: HttpRequest, scope: Scope, pool: Pool, told: Mapping[str, Any], *, status: int = 200
) -> HttpResponse:
    machines = Machine.objects.filter(pool=pool).order_by("name")
    size = pool_sizes(scope.cluster_here).get(pool.slug, PoolSize())
    context = {
        "scope": scope,
        "section": "machines",
        "pool": pool,
        "size": size,
        "machines": machines[:MOST_SHOWN],
        "more": max(0, size.machines - MOST_SHOWN),
        "back": _address(scope),
        **told,
    }
    return render(request, "pools/pool.html", context, status=status)


def _address(scope: Scope, pool: str = "") -> str:
    place = [scope.organization.slug, scope.cluster_slug]
    return reverse("pool", args=[*place, pool]) if pool else reverse("pools", args=place)


# --- The form -----------------------------------------------------------------------------------------------


def _names(name_hint: str) -> tuple[Field, Field]:
    return (
        Field("name", "Name", hint=name_hint or "Runs name it in node_selection: letters, digits and -."),
        Field("title", "Title", hint="What people read; empty: the name."),
    )


def _edit_form(pool: Pool) -> Form:
    fields = (
        *_names("Can be changed while no run that waits or runs names it."),
        *_share_fields(pool.cluster),
    )
    values = {"name": pool.slug, "title": pool.name}
    for slug, share in shares_of(pool).items():
        cap = "" if share.gpu_cap is None else str(share.gpu_cap)
        values |= {f"may-{slug}": "yes", f"cap-{slug}": cap}
        values |= {f"guaranteed-{slug}": str(share.guaranteed_gpus or "")}
    return Form("pool", "Save", fields).filled(values)


def _share_fields(cluster: Cluster) -> tuple[Field, ...]:
    """A line of three for each workspace."""
    workspaces = Workspace.objects.filter(organization=cluster.organization_id).order_by("slug")
    return tuple(
        replace(each, group=f"Workspace {slug}")
        for slug in workspaces.values_list("slug", flat=True)
        for each in (
            Field(f"may-{slug}", "May use it", "select", choices=MAY),
            Field(f"cap-{slug}", "GPUs at most"),
            Field(f"guaranteed-{slug}", "GPUs guaranteed"),
        )
    )


def _shares(post: Mapping[str, str]) -> dict[str, Share]:
    """Raises Invalid for what is no number."""
    slugs = [name.removeprefix("may-") for name, word in post.items() if name.startswith("may-") and word]
    return {slug: Share(_gpus(post, f"cap-{slug}"), _gpus(post, f"guaranteed-{slug}") or 0) for slug in slugs}


def _gpus(post: Mapping[str, str], name: str) -> int | None:
    """None: left empty."""
    text = typed(post, name)
    if not text:
        return None
    number = number_read(text, MOST_GPUS)
    if number is None:
        message = f"{shown(text)} is no number of GPUs. Write digits, or leave it empty."
        raise Invalid("number", message, errors=(FieldError(name, "number", message),))
    return number


def _refused(form: Form, error: DomainError) -> Form:
    """With what is wrong at the fields that the service's paths mean."""
    told = tuple(replace(each, path=_field(each.path)) for each in error.errors)
    return form.refused(type(error)(error.code, error.message, errors=told))


def _field(path: str) -> str:
    if not path.startswith("spec.workspaces."):
        return PATHS.get(path, path)
    slug, _, what = path.removeprefix("spec.workspaces.").partition(".")
    return f"guaranteed-{slug}" if what else f"may-{slug}"
