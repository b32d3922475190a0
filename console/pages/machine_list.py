"""The Machines page, and the one command that adds a machine."""

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from common.errors import NotFound
from common.secrets import secret_digest
from console.numbers import number_read
from console.pages.errors import is_fragment, page
from console.pages.machine_facts import (
    gpus_present,
    machine_rows,
    machines_for_display,
    models_words,
    places_of,
)
from console.pages.scope import Scope, cluster_scope
from machines.models import JoinToken, Machine, Pool
from machines.services import join_token_create
from tenancy.roles import Permission

PAGE_SIZE = 100


@page
@require_safe
def machine_list(request: HttpRequest, organization: str, cluster: str) -> HttpResponse:
    scope = cluster_scope(request, organization, cluster)
    text, pool = request.GET.get("text", "").strip()[:100], request.GET.get("pool", "")
    machines = _filtered(scope, text, pool)
    after = request.GET.get("after", "")
    found = list(machines_for_display(machines.filter(name__gt=after)).order_by("name")[: PAGE_SIZE + 1])
    context = {
        "scope": scope,
        "section": "machines",
        "rows": machine_rows(found[:PAGE_SIZE]),
        "older": found[PAGE_SIZE - 1].name if len(found) > PAGE_SIZE else None,
        "after": after,
        "text": text,
        "pool": pool,
    }
    if is_fragment(request):
        return render(request, "machines/list.html#live", {**context, "oob": True})
    pools = Pool.objects.filter(cluster=scope.cluster).order_by("slug").values_list("slug", flat=True)
    return render(request, "machines/list.html", {**context, "pools": list(pools)})


def _filtered(scope: Scope, text: str, pool: str) -> QuerySet[Machine]:
    machines = Machine.objects.filter(cluster=scope.cluster)
    if text:
        machines = machines.filter(name__icontains=text)
    return machines.filter(pool__slug=pool) if pool else machines


@page
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def machine_add(request: HttpRequest, organization: str, cluster: str) -> HttpResponse:
    """GET asks for the pool; POST makes a token and shows it, this once; fragments wait for the machine."""
    scope = cluster_scope(request, organization, cluster, Permission.OPERATE_MACHINES)
    if is_fragment(request):
        context = {"scope": scope, **_joined(scope, request.GET.get("token", ""))}
        return render(request, "machines/add.html#waiting", context)
    pools = list(Pool.objects.filter(cluster=scope.cluster).order_by("slug"))
    context = {"scope": scope, "section": "machines", "pools": pools, "pool": request.POST.get("pool", "")}
    if request.method == "POST":
        context |= _command(scope, _pool(pools, request.POST.get("pool", "")))
    return render(request, "machines/add.html", context)


def _pool(pools: list[Pool], slug: str) -> Pool:
    """The pool chosen, or the first where nothing was chosen."""
    chosen = next((each for each in pools if each.slug == slug), None)
    if chosen is None and slug == "" and pools:
        chosen = pools[0]
    if chosen is None:
        raise NotFound
    return chosen


def _command(scope: Scope, pool: Pool) -> dict[str, object]:
    secret = join_token_create(pool=pool, by=scope.actor.name)
    token = JoinToken.objects.get(digest=secret_digest(secret.value))
    command = f"astraeus-agent join --server {settings.PUBLIC_URL} --token {secret.value} --run"
    return {"command": command, "token": token, "pool": pool.slug, "machine": None}


def _joined(scope: Scope, token_id: str) -> dict[str, object]:
    """What has become of a token: its machine, once it has one and has reported what it has."""
    number = number_read(token_id) or 0  # which no token has
    token = JoinToken.objects.filter(pool__cluster=scope.cluster, id=number).first()
    if token is None:
        raise NotFound
    if token.machine_id is None:
        return {"token": token, "machine": None}
    machine = machines_for_display(Machine.objects.filter(id=token.machine_id)).get()
    return {
        "token": token,
        "machine": machine,
        "models": models_words(gpus_present(machine)) or "no GPUs",
        "fabric": places_of(machine)["fabric"].value,
    }
