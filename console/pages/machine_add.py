"""Add a machine: the one command, shown once, and a page that waits for the machine."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from common.errors import NotFound
from console.joining import AGENT_INSTALL, join_command
from console.numbers import number_read
from console.pages.errors import is_fragment, page
from console.pages.machine_facts import gpus_present, machines_for_display, models_words, places_of
from console.pages.scope import Scope, cluster_scope
from machines.models import JoinToken, Machine, Pool
from machines.services import join_token_issue, join_token_revoke
from tenancy.roles import Permission


@page
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def machine_add(request: HttpRequest, organization: str, cluster: str) -> HttpResponse:
    """GET asks for the pool; POST makes a token and shows it, this once; fragments wait for the machine."""
    scope = cluster_scope(request, organization, cluster, Permission.OPERATE_MACHINES)
    if "token" in request.GET:
        return _waiting(request, scope, _token(scope, request.GET["token"]))
    pools = list(Pool.objects.filter(cluster=scope.cluster).order_by("slug"))
    context = {
        "scope": scope,
        "section": "machines",
        "pools": pools,
        "pool": request.POST.get("pool", ""),
        "install": AGENT_INSTALL,
    }
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


def _command(scope: Scope, pool: Pool) -> dict[str, Any]:
    token, secret = join_token_issue(pool=pool, actor=scope.actor)
    return {"command": join_command(secret), "token": token, "pool": pool.slug, "machine": None}


def _token(scope: Scope, token_id: str) -> JoinToken:
    number = number_read(token_id) or 0  # which no token has
    tokens = JoinToken.objects.select_related("pool__cluster__organization")
    token = tokens.filter(pool__cluster=scope.cluster, id=number).first()
    if token is None:
        raise NotFound
    return token


def _waiting(request: HttpRequest, scope: Scope, token: JoinToken) -> HttpResponse:
    """What has become of a token: POST revokes it; without JavaScript a page of its own, to be loaded again."""
    if request.method == "POST":
        join_token_revoke(token=token, actor=scope.actor)
        token = _token(scope, str(token.pk))
    context = {"scope": scope, "section": "machines", **_joined(token)}
    return render(
        request, "machines/add.html#waiting" if is_fragment(request) else "machines/add.html", context
    )


def _joined(token: JoinToken) -> dict[str, Any]:
    """Its machine, once it has one; it is there when it has reported what it has."""
    if token.machine_id is None:
        return {"token": token, "machine": None, "expired": token.expires_at <= timezone.now()}
    machine = machines_for_display(Machine.objects.filter(id=token.machine_id)).first()
    if machine is None:  # removed again
        raise NotFound
    return {
        "token": token,
        "machine": machine,
        "reported": machine.last_seen_at is not None,
        "models": models_words(gpus_present(machine)) or "no GPUs",
        "fabric": places_of(machine)["fabric"].value,
    }
