"""A worker's page: one name over all attempts."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from common.errors import NotFound
from console.pages.errors import is_fragment, page
from console.pages.explanation import explanation_shown
from console.pages.run_log import log_view
from console.pages.run_page import run_address
from console.pages.scope import Scope, workspace_scope
from console.pages.selectors import EVENTS_SHOWN, events_rows, gpu_indices
from console.pages.words import gpus_words
from placement import words
from runs.models import Assignment, Run, Worker
from runs.presentation import runs_for_display, worker_reason, workers_ranked
from runs.states import RunState, WorkerState
from wire.spec import RunDocument, stored_document


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    value: str
    secret: str
    """The secret that it comes from; then there is no value to show."""


@page
@require_safe
def worker_page(request: HttpRequest, organization: str, workspace: str, worker: str) -> HttpResponse:
    scope = workspace_scope(request, organization, workspace)
    found = _worker(scope, worker)
    own = found.run
    run = runs_for_display(Run.objects.filter(id=own.shown_id)).get()
    attempts = list(found.assignments.select_related("machine", "attempt").order_by("-attempt__number"))
    shown = _shown(attempts, request.GET.get("attempt", ""))
    context = {
        "scope": scope,
        "section": "runs",
        "run": run,
        "worker": found,
        "run_address": run_address(run),
        "reason": worker_reason(found),
        "attempts": attempts,
        "shown": shown,
        "waits": own.state == RunState.PENDING,
        "together": not run.independent,
        "explanation": explanation_shown(own, run, scope),
        "neighbours": _neighbours(run, found),
        "gpus": gpus_words(gpu_indices([shown])[str(shown.id)]) if shown else "",
        "network": words.verdict_words(shown.attempt.network) if shown else "",
        "events": events_rows(found.events.order_by("-id")[:EVENTS_SHOWN]),
    }
    if is_fragment(request):
        return render(request, "workers/worker.html#live", {**context, "oob": True})
    # An attempt that the address names stays; otherwise the log goes on with the next attempt.
    asked = shown.attempt.number if shown and "attempt" in request.GET else None
    context |= {
        "variables": variables_of(shown, stored_document(run.document)) if shown else [],
        "failed": found.state == WorkerState.FAILED,
        "log": log_view(scope, run, worker=found.name, attempt=asked),
    }
    return render(request, "workers/worker.html", context)


def _worker(scope: Scope, name: str) -> Worker:
    workers = Worker.objects.filter(run__workspace=scope.workspace, name=name)
    found = workers.select_related("run__workspace", "run__cluster").first()
    if found is None:
        raise NotFound
    return found


def _shown(newest_first: list[Assignment], attempt: str) -> Assignment | None:
    """The attempt that the address asks for, else the newest."""
    asked = next((each for each in newest_first if str(each.attempt.number) == attempt), None)
    return asked or (newest_first[0] if newest_first else None)


def _neighbours(run: Run, worker: Worker) -> dict[str, Any]:
    ranked = workers_ranked(run)
    by_rank = {each.rank: each for each in ranked}
    return {"before": by_rank.get(worker.rank - 1), "after": by_rank.get(worker.rank + 1), "all": len(ranked)}


def variables_of(assignment: Assignment, document: RunDocument) -> list[Variable]:
    """What the worker gets, by name; those of secrets without their values."""
    template = next(g.template for g in document.groups() if g.name == assignment.worker.group)
    secrets = {ref.env: ref.name for ref in template.secret_refs if ref.env}
    env: dict[str, str] = assignment.launch.get("env", {})
    names = sorted({*env, *secrets})
    return [Variable(name, "" if name in secrets else env[name], secrets.get(name, "")) for name in names]
