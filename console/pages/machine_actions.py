"""What operators do with a machine, each after a question: cordon, drain, move, rename, revoke, remove.

The question is a page of its own, which the machine's page shows as a dialog where there is JavaScript.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from common.errors import Conflict, Invalid
from console.numbers import number_read
from console.pages import machine_facts as facts
from console.pages.errors import is_fragment, page
from console.pages.machine_labels import saying
from console.pages.machine_page import machine_address
from console.pages.scope import Scope, cluster_scope
from machines import operations, services
from machines.models import Machine, Pool
from machines.pools import machines_move
from runs.explaining.moments import moment_words
from runs.machine_preview import Preview, machine_preview
from tenancy.roles import Permission

DRAIN_TIMES = (
    (0, "no time"),
    (15 * 60, "15 minutes"),
    (60 * 60, "1 hour"),
    (4 * 60 * 60, "4 hours"),
    (12 * 60 * 60, "12 hours"),
    (24 * 60 * 60, "1 day"),
    (3 * 24 * 60 * 60, "3 days"),
)
"""How long what runs on a machine may go on, in seconds and in words."""
DRAIN_USUAL = 60 * 60


class Affects(Exception):
    """It would affect runs in a way that the person who asks for it has not been shown."""

    def __init__(self, mark: str, preview: Preview) -> None:
        super().__init__(mark)
        self.mark = mark
        self.preview = preview


Action = Callable[[HttpRequest, Scope, Machine], str]
"""Does it and returns what is said then; raises Invalid, Conflict or Affects for what the question shows again."""
Shows = Callable[[HttpRequest, Scope, Machine], dict[str, Any]]
"""What the question shows beside the machine."""
View = Callable[Concatenate[HttpRequest, ...], HttpResponse]


def action(name: str, *, shows: Shows | None = None) -> Callable[[Action], View]:
    """A view that asks on GET and does it on POST. Fragments are the question's preview."""

    def decorate(act: Action) -> View:
        @page
        @require_http_methods(["GET", "HEAD", "POST"])
        @wraps(act)
        def view(request: HttpRequest, organization: str, cluster: str, machine: str) -> HttpResponse:
            scope = cluster_scope(request, organization, cluster, Permission.OPERATE_MACHINES)
            found = facts.machine_find(scope, machine)
            told: dict[str, Any] = {}
            if request.method == "POST":
                try:
                    messages.success(request, act(request, scope, found))
                except (Invalid, Conflict) as error:
                    told = {"problem": error.message, "status": error.status}
                    told["wrong"] = error.errors[0].path if error.errors else ""
                except Affects as unseen:
                    told = {"preview": unseen.preview, "mark": unseen.mark}
                else:
                    return _back(scope, found)
            extra = shows(request, scope, found) if shows else {}
            context: dict[str, Any] = {
                "scope": scope,
                "section": "machines",
                "machine": found,
                "action": name,
            }
            context |= {"back": machine_address(found), "typed": request.POST, **extra, **told}
            if is_fragment(request):
                preview = render(request, "machines/confirm.html#preview", context)
                return saying(preview, context["preview"].said) if "preview" in context else preview
            return render(request, "machines/confirm.html", context, status=told.get("status", 200))

        return view

    return decorate


def _back(scope: Scope, machine: Machine) -> HttpResponse:
    """To the machine, under the name that it has now; to the list when it is gone."""
    now = Machine.objects.select_related("cluster__organization").filter(id=machine.id).first()
    if now is None:
        return redirect("machines", scope.organization.slug, machine.cluster.slug)
    return redirect(machine_address(now))


@action("cordon")
def machine_cordon(request: HttpRequest, scope: Scope, machine: Machine) -> str:
    services.machine_cordon(machine=machine, actor=scope.actor, reason=reason_typed(request))
    return f"{machine.name} is cordoned: it takes no new work."


@action("uncordon")
def machine_uncordon(request: HttpRequest, scope: Scope, machine: Machine) -> str:  # noqa: ARG001 - it asks for nothing
    services.machine_uncordon(machine=machine, actor=scope.actor)
    return f"{machine.name} takes work again."


def _drain_shows(_: HttpRequest, scope: Scope, machine: Machine) -> dict[str, Any]:
    return {
        "runs": facts.runs_here(machine, scope),
        "times": DRAIN_TIMES,
        "usual": DRAIN_USUAL,
    }


@action("drain", shows=_drain_shows)
def machine_drain(request: HttpRequest, scope: Scope, machine: Machine) -> str:
    seconds = number_read(request.POST.get("within", ""), DRAIN_TIMES[-1][0])
    if seconds is None:
        raise Invalid("within", "Choose how long what runs there may go on.")
    until = operations.machine_drain(
        machine=machine, actor=scope.actor, within=timedelta(seconds=seconds), reason=reason_typed(request)
    )
    now = until - timedelta(seconds=seconds)
    when = f"what still runs there at {moment_words(until, now)}" if seconds else "what runs there"
    return f"{machine.name} drains: it takes no new work, and {when} goes back to the queue."


def _move_shows(request: HttpRequest, scope: Scope, machine: Machine) -> dict[str, Any]:
    """The pools; with `?pool=` what moving it there would do."""
    pool = request.GET.get("pool", "")
    now = machine.pool.slug if machine.pool else ""
    shown: dict[str, Any] = {"chosen": request.POST.get("pool") or pool or now}
    shown["pools"] = (
        Pool.objects.filter(cluster=machine.cluster_id).order_by("slug").values_list("slug", flat=True)
    )
    if pool:
        try:
            shown |= {"mark": pool, "preview": _move_preview(scope, machine, pool)}
        except Invalid as error:
            shown["problem"] = error.message
    return shown


def _move_preview(scope: Scope, machine: Machine, pool: str) -> Preview:
    return machine_preview(
        machine,
        lambda: machines_move(machines=[machine], pool=pool, actor=scope.actor),
        visible={each.id for each in scope.workspaces},
    )


@action("move", shows=_move_shows)
def machine_move(request: HttpRequest, scope: Scope, machine: Machine) -> str:
    pool = request.POST.get("pool", "")
    if request.POST.get("seen") != pool and (preview := _move_preview(scope, machine, pool)).affects:
        raise Affects(pool, preview)
    machines_move(machines=[machine], pool=pool, actor=scope.actor)
    return f"{machine.name} is in pool {pool}."


@action("rename")
def machine_rename(request: HttpRequest, scope: Scope, machine: Machine) -> str:
    name = request.POST.get("name", "").strip()
    operations.machine_rename(machine=machine, name=name, actor=scope.actor)
    return f"{machine.name} is named {name} now."


@action("revoke")
def machine_revoke(request: HttpRequest, scope: Scope, machine: Machine) -> str:  # noqa: ARG001 - it asks for nothing
    if not operations.machine_sign_out(machine=machine, actor=scope.actor):
        return f"{machine.name} had no credential that could be revoked."
    return f"The credential of {machine.name} is revoked: its agent is refused until the machine joins again."


@action("remove")
def machine_remove(request: HttpRequest, scope: Scope, machine: Machine) -> str:
    if request.POST.get("name", "").strip() != machine.name:
        raise Invalid("name", f"That is not the name. Type {machine.name}.")
    operations.machine_remove(machine=machine, actor=scope.actor)
    return f"{machine.name} is removed."


def reason_typed(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip()[:200]
