"""A run's page, and what one may do with it there: stop, restart, delete, each with a question first."""

import json
import re

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from console.pages.errors import is_fragment, page
from console.pages.explanation import explanation_shown
from console.pages.metric_chart import metrics_context
from console.pages.run_log import log_view
from console.pages.run_timeline import run_timeline
from console.pages.scope import Scope, workspace_scope
from console.pages.selectors import RunView, run_view
from console.pages.words import request_words
from placement.phrases import plural
from runs import services
from runs.models import Run
from runs.removal import run_delete_now
from runs.states import RUN_ENDED, RunState
from tenancy.roles import Permission
from wire.spec import stored_document

LOG_LINES = 20
WORKERS_SHOWN = 50
"""On a page of the table; the others stand on pages of their own: `?workers=2`."""

_NOT_ASCII = re.compile(r"[^\n -~]")


@page
@require_safe
def run_page(request: HttpRequest, organization: str, workspace: str, cluster: str, run: str) -> HttpResponse:
    scope = workspace_scope(request, organization, workspace)
    view = run_view(scope.here, cluster, run)
    context = {
        "scope": scope,
        "section": "runs",
        "view": view,
        "run": view.run,
        "rows": Paginator(view.workers, WORKERS_SHOWN).get_page(request.GET.get("workers")),
        "explanation": explanation_shown(view.run, view.run, scope),
        "timeline": run_timeline(view.run),
    }
    if is_fragment(request):
        return render(request, "runs/run.html#live", {**context, "oob": True})
    context |= {
        "request_words": request_words(stored_document(view.run.document)),
        "specification": specification(view.run),
        "log": log_view(scope, view.run, worker=view.failed, plain=LOG_LINES),
    }
    return render(request, "runs/run.html", context)


@page
@require_safe
def run_metrics(
    request: HttpRequest, organization: str, workspace: str, cluster: str, run: str
) -> HttpResponse:
    """The charts alone, as the run's page has them: it asks for them again while the run goes on."""
    scope = workspace_scope(request, organization, workspace)
    found = run_view(scope.here, cluster, run).run
    return render(request, "runs/metrics.html", metrics_context(found, scope))


def specification(run: Run) -> str:
    """The document as JSON: what is invisible, or turns the text around it, stands there as an escape."""
    text = json.dumps(run.document, indent=2, ensure_ascii=False)
    return _NOT_ASCII.sub(lambda each: each[0] if each[0].isprintable() else json.dumps(each[0])[1:-1], text)


def run_address(run: Run) -> str:
    """`run` with its workspace, organization and cluster loaded."""
    workspace = run.workspace
    parts = {
        "organization": workspace.organization.slug,
        "workspace": workspace.slug,
        "cluster": run.cluster.slug,
        "run": run.name,
    }
    return reverse("run", kwargs=parts)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def run_stop(request: HttpRequest, organization: str, workspace: str, cluster: str, run: str) -> HttpResponse:
    scope, view = _to_change(request, organization, workspace, cluster, run)
    if request.method == "POST":
        services.run_stop(run=view.run, actor=scope.actor)
        messages.success(request, f"{view.run.name} is being stopped.")
        return redirect(run_address(view.run))
    question = f"Stop {view.run.name}?"
    return _confirm(request, scope, view, question, stop_words(view), "Stop run", "Keep running")


@page
@require_http_methods(["GET", "HEAD", "POST"])
def run_restart(
    request: HttpRequest, organization: str, workspace: str, cluster: str, run: str
) -> HttpResponse:
    scope, view = _to_change(request, organization, workspace, cluster, run)
    if request.method == "POST":
        services.run_restart(run=view.run, actor=scope.actor)
        messages.success(request, f"{view.run.name} goes back into the queue.")
        return redirect(run_address(view.run))
    attempt = view.run.attempt_no
    text = f"Attempt {attempt + 1} goes into the queue; the log of attempt {attempt} is kept."
    if view.run.state not in RUN_ENDED:
        text = f"{stop_words(view)} {text}"
    question = f"Restart {view.run.name}?"
    return _confirm(request, scope, view, question, text, "Restart run", "Cancel", danger=not view.ended)


def _confirm(
    request: HttpRequest,
    scope: Scope,
    view: RunView,
    question: str,
    text: str,
    yes: str,
    no: str,
    *,
    danger: bool = True,
) -> HttpResponse:
    context = {
        "scope": scope,
        "section": "runs",
        "run": view.run,
        "question": question,
        "text": text,
        "yes": yes,
        "no": no,
        "danger": danger,
        "back": run_address(view.run),
    }
    return render(request, "runs/confirm.html", context)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def run_delete(
    request: HttpRequest, organization: str, workspace: str, cluster: str, run: str
) -> HttpResponse:
    scope, view = _to_change(request, organization, workspace, cluster, run)
    typed = request.POST.get("name", "").strip()
    if request.method == "POST" and typed == view.run.name:
        gone = run_delete_now(run=view.run, actor=scope.actor)
        name = view.run.name
        messages.success(request, f"{name} deleted." if gone else f"{name} stops first; then it is deleted.")
        return redirect("runs", organization=organization, workspace=workspace)
    context = {
        "scope": scope,
        "section": "runs",
        "run": view.run,
        "stops_first": not view.ended,
        "typed": typed,
        "wrong": request.method == "POST",
        "back": run_address(view.run),
    }
    return render(request, "runs/delete.html", context, status=422 if context["wrong"] else 200)


def _to_change(
    request: HttpRequest, organization: str, workspace: str, cluster: str, run: str
) -> tuple[Scope, RunView]:
    scope = workspace_scope(request, organization, workspace, Permission.WRITE_RUNS)
    return scope, run_view(scope.here, cluster, run)


def stop_words(view: RunView) -> str:
    """What a stop costs: `Both workers get SIGTERM and 30 s, then SIGKILL. 16 GPUs become free.`"""
    if view.run.state == RunState.PENDING:
        return "It leaves the queue; nothing runs yet."
    document = stored_document(view.run.document)
    template = document.groups()[0].template
    rows = [row for row in view.workers if row.assignment] if view.run.independent else view.workers
    count = len(rows)
    who = {1: "Its worker gets", 2: "Both workers get"}.get(count, f"All {count} workers get")
    gpus = sum(len(row.assignment.launch.get("gpu_uuids", [])) for row in view.workers if row.assignment)
    free = f" {plural(gpus, 'GPU')} become{'s' if gpus == 1 else ''} free." if gpus else ""
    return f"{who} {template.stop_signal} and {template.stop_grace_seconds} s, then SIGKILL.{free}"
