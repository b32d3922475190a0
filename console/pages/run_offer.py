"""A change that an explanation offers, done after a question that says what it is and what it costs."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from common.errors import Conflict, Forbidden, Invalid
from console.pages.errors import page
from console.pages.explanation import explained, offer_button, patch_text
from console.pages.run_page import run_address, stop_words
from console.pages.scope import Scope, workspace_scope
from console.pages.selectors import run_compose
from placement.phrases import and_list
from runs.explanations import explanation_in_rows
from runs.models import Run
from runs.offers import CHANGED, Offer, offer_find, offer_take
from runs.presentation import run_get, runs_for_display
from runs.states import RunState


@page
@require_http_methods(["GET", "HEAD", "POST"])
def run_offer(
    request: HttpRequest, organization: str, workspace: str, cluster: str, run: str, offer: str
) -> HttpResponse:
    """Asks on GET, does it on POST. An offer that the last pass no longer makes leads to those that it makes."""
    scope = workspace_scope(request, organization, workspace)
    found = run_get(workspace=scope.here, name=run, cluster=cluster)
    offered = offer_find(found, offer) if found.state == RunState.PENDING else None
    if offered is None or not offered.deeds:
        return _changed(request, scope, found)
    for need in sorted(offered.needs - scope.grants):
        raise Forbidden(f"Your role does not allow you to {need.label}. An admin or owner can do it.")
    if request.method != "POST":
        return _ask(request, scope, found, offered)
    try:
        offer_take(run=found, actor=scope.actor, offer=offered)
    except Conflict:
        return _changed(request, scope, found)
    except Invalid as error:
        return _ask(request, scope, found, offered, problem=error.errors[0].message)
    messages.success(request, f"Done: {offered.text}. The next pass is to start {found.name}.")
    return redirect(run_address(found))


def _changed(request: HttpRequest, scope: Scope, run: Run) -> HttpResponse:
    now = run_get(workspace=scope.here, name=run.name, cluster=run.cluster.slug)
    context = {
        "scope": scope,
        "section": "runs",
        "run": now,
        "explanation": explained(explanation_in_rows(now), now, scope),
        "problem": CHANGED,
    }
    return render(request, "runs/explanation.html", context)


def _ask(request: HttpRequest, scope: Scope, run: Run, offer: Offer, problem: str = "") -> HttpResponse:
    context = {
        "scope": scope,
        "section": "runs",
        "run": run,
        "offer": offer,
        "patch": patch_text(offer.patch),
        "question": f"Stop {and_list(offer.stops)}?"
        if offer.stops and len(offer.deeds) == 1
        else f"{offer.text}?",
        "losses": _losses(scope, offer),
        "yes": _yes(offer),
        "back": run_address(run),
        "problem": problem,
    }
    return render(request, "runs/offer.html", context, status=422 if problem else 200)


def _losses(scope: Scope, offer: Offer) -> list[tuple[str, str, str]]:
    """Of each run that it stops: its name, whose it is, and what is lost."""
    runs = runs_for_display(Run.objects.of(scope.here).filter(name__in=offer.stops)).order_by("name")
    return [
        (each.name, each.created_by.username if each.created_by else "", stop_words(run_compose(each)))
        for each in runs
    ]


def _yes(offer: Offer) -> str:
    """The button that does it."""
    if offer.stops:
        return f"Stop {and_list(offer.stops)}"
    return "Save and requeue" if offer.patch else offer_button(offer).removesuffix("…")
