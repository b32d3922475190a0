"""Stopping the runs that were ticked in the list: the question with exact numbers, then the act."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.request import QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from common.errors import Invalid
from console.numbers import number_read
from console.pages.errors import page
from console.pages.scope import Scope, workspace_scope
from placement.phrases import TOLD_IN_FULL, and_list, plural, shortened
from runs.states import RunState
from runs.stopping import MOST, Left, Picked, StopOutlook, Stoppable, runs_stop, stop_outlook
from tenancy.roles import Permission

NAME_SHOWN = 63
"""Characters of a name that an address brings: what is longer was never a run's."""
KINDS = {
    RunState.RUNNING: "running",
    RunState.STARTING: "starting",
    RunState.STOPPING: "ending an attempt",
    RunState.PENDING: "waiting",
}
"""What runs that can be stopped are doing, in the order in which the question tells it."""


@page
@require_http_methods(["GET", "HEAD", "POST"])
def runs_stop_page(request: HttpRequest, organization: str, workspace: str) -> HttpResponse:
    scope = workspace_scope(request, organization, workspace, Permission.WRITE_RUNS)
    sent = request.POST if request.method == "POST" else request.GET
    picked, back = picked_read(sent.getlist("run")), _list_address(scope, sent)
    if request.method == "POST":
        _tell(request, runs_stop(scope.here, scope.actor, picked))
        return redirect(back)
    outlook = stop_outlook(scope.here, picked)
    context = {
        "scope": scope,
        "section": "runs",
        "back": back,
        "list": sent.get("list", ""),
        "outlook": outlook,
        **question(outlook, picked),
    }
    return render(request, "runs/stop_many.html", context)


def picked_read(values: Sequence[str]) -> list[Picked]:
    """`42:llm-7` each, every run once. Raises Invalid for too many; what is no such value is passed over."""
    found: dict[int, Picked] = {}
    for value in values:
        number, _, name = value.partition(":")
        run_id = number_read(number)
        if run_id is not None and name:
            found.setdefault(run_id, Picked(run_id, name[:NAME_SHOWN]))
    if len(found) > MOST:
        text = f"{plural(len(found), 'run')} are ticked; at most {MOST} can be stopped at once. Nothing was stopped."
        raise Invalid("too_many_runs", text)
    return list(found.values())


def _list_address(scope: Scope, sent: QueryDict) -> str:
    """The list as it was, with its filters and its page."""
    address = reverse("runs", args=(scope.organization.slug, scope.here.slug))
    query = QueryDict(sent.get("list", "")).urlencode()
    return f"{address}?{query}" if query else address


def question(outlook: StopOutlook, picked: Sequence[Picked]) -> dict[str, Any]:
    """The question, what it costs, and who is meant."""
    names = [each.run.name for each in outlook.stops]
    if not names:
        asked = "None of these runs can be stopped." if picked else "No run is ticked."
    else:
        asked = f"Stop {names[0]}?" if len(names) == 1 else f"Stop {plural(len(names), 'run')}?"
    kinds = list(_by_kind(outlook.stops))
    return {
        "question": asked,
        "text": f"{'; '.join(_cost(*each) for each in kinds)}." if kinds else "",
        "kinds": [(KINDS[state], each) for state, each in kinds],
        "yes": f"Stop {plural(len(names), 'run')}",
        "left": left_words(outlook.left) if outlook.left else "",
    }


def _by_kind(stops: Sequence[Stoppable]) -> list[tuple[RunState, list[Stoppable]]]:
    order = list(KINDS)
    ranked = sorted(stops, key=lambda each: order.index(RunState(each.run.state)))
    return [(RunState(state), list(group)) for state, group in groupby(ranked, lambda each: each.run.state)]


def _cost(state: RunState, runs: list[Stoppable]) -> str:
    """`8 are running and free 96 GPUs`."""
    one, gpus = len(runs) == 1, sum(each.gpus for each in runs)
    freed = f" and {'frees' if one else 'free'} {plural(gpus, 'GPU')}" if gpus else ""
    return f"{len(runs):,} {'is' if one else 'are'} {KINDS[state]}{freed}"


def _tell(request: HttpRequest, done: StopOutlook) -> None:
    names = [each.run.name for each in done.stops]
    if names:
        who = and_list(names) if len(names) <= TOLD_IN_FULL else shortened(names)
        messages.success(request, f"{who} {'is' if len(names) == 1 else 'are'} being stopped.")
    if done.left:
        messages.warning(request, left_words(done.left))


def left_words(left: Sequence[Left]) -> str:
    """`Not stopped: eval-3 and tune-9 (ended already: Failed); old-1 (no longer here).`"""
    reasons = dict.fromkeys(each.why for each in left)
    told = (f"{and_list([each.name for each in left if each.why == why])} ({why})" for why in reasons)
    return f"Not stopped: {'; '.join(told)}."
