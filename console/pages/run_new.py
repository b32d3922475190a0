"""New run: a document as JSON, typed, pasted or from a file. Nothing typed is ever lost."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from common.errors import Conflict, DomainError, Invalid
from console.pages.document_lines import PlacedError, errors_place
from console.pages.errors import page
from console.pages.run_page import run_address
from console.pages.scope import Scope, workspace_scope
from runs import services
from tenancy.roles import Permission
from wire.spec.tree import MAX_DOCUMENT_BYTES


@page
@require_http_methods(["GET", "HEAD", "POST"])
def run_new(request: HttpRequest, organization: str, workspace: str) -> HttpResponse:
    scope = workspace_scope(request, organization, workspace, Permission.WRITE_RUNS)
    if request.method != "POST":
        return _form(request, scope, "")
    text = request.POST.get("document", "")
    uploaded = request.FILES.get("file")
    if uploaded is not None:
        # One byte more than allowed: the document's own check then says that it is too large.
        text = uploaded.read(MAX_DOCUMENT_BYTES + 1).decode("utf-8-sig", errors="replace")
    if "load" in request.POST:
        return _form(request, scope, text)
    return _submit(request, scope, text.replace("\r\n", "\n"))


def _submit(request: HttpRequest, scope: Scope, text: str) -> HttpResponse:
    try:
        run, _ = services.run_submit(workspace=scope.here, actor=scope.actor, text=text)
    except (Invalid, Conflict) as error:
        return _form(request, scope, text, error)
    messages.success(request, f"{run.name} is in the queue.", extra_tags="submitted")
    return redirect(run_address(run))


def _form(request: HttpRequest, scope: Scope, text: str, error: DomainError | None = None) -> HttpResponse:
    placed: list[PlacedError] = errors_place(text, error.errors) if error else []
    context = {
        "scope": scope,
        "section": "runs",
        "text": text,
        "error": error,
        "placed": placed,
        "bad_lines": ",".join(str(each.line) for each in placed),
    }
    return render(request, "runs/new.html", context, status=error.status if error else 200)
