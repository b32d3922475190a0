"""New run, and a waiting run's document edited in place: a form and a JSON editor over one document.

Nothing typed is ever lost: what can't be taken comes back as it was, with what is wrong with it.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from common.errors import Conflict, DomainError, FieldError, Invalid, NotFound
from console.pages.document_lines import errors_place
from console.pages.errors import is_fragment, page
from console.pages.run_form import board, draft, starts
from console.pages.run_form.draft import AS_JSON, FORM, Draft
from console.pages.run_form.form import form_of, spots_of
from console.pages.run_form.preview import TOO_LITTLE, Asking, Preview, preview
from console.pages.run_page import run_address
from console.pages.scope import Scope, workspace_scope
from runs import services
from runs.editing import run_edit
from runs.models import Run
from runs.presentation import run_get
from tenancy.roles import Permission
from wire.spec.tree import MAX_DOCUMENT_BYTES

METHODS = ["GET", "HEAD", "POST"]


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a document is written: for a new run, or for one that waits."""

    scope: Scope
    run: Run | None = None

    @property
    def address(self) -> str:
        where = [self.scope.organization.slug, self.scope.here.slug]
        return (
            reverse("run_new", args=where)
            if self.run is None
            else reverse("run_edit", args=[*where, self.run.cluster.slug, self.run.name])
        )

    @property
    def asking(self) -> Asking:
        return Asking(self.scope.here, self.scope.actor, self.run)

    def submit(self, text: str) -> Run:
        """Raises Invalid and Conflict."""
        if self.run is not None:
            run_edit(run=self.run, actor=self.scope.actor, text=text)
            return self.run
        return services.run_submit(workspace=self.scope.here, actor=self.scope.actor, text=text)[0]

    @property
    def done(self) -> str:
        return "is in the queue." if self.run is None else "is in the queue with what you changed."


@page
@require_http_methods(METHODS)
def run_new(request: HttpRequest, organization: str, workspace: str) -> HttpResponse:
    """`?start=` one of the templates, `?clone=` the run of that name; `?as=json` opens the JSON editor."""
    desk = Desk(workspace_scope(request, organization, workspace, Permission.WRITE_RUNS))
    if request.method == "POST":
        return _post(request, desk)
    return _show(request, desk, Draft(_begin(request, desk.scope), _mode(request)))


@page
@require_http_methods(METHODS)
def run_edit_page(
    request: HttpRequest, organization: str, workspace: str, cluster: str, run: str
) -> HttpResponse:
    """`?patch=` a JSON merge patch: a change that was offered, made and marked, but not saved."""
    scope = workspace_scope(request, organization, workspace, Permission.WRITE_RUNS)
    desk = Desk(scope, run_get(workspace=scope.here, name=run, cluster=cluster))
    if request.method == "POST":
        return _post(request, desk)
    begun = Draft(starts.run_text(desk.run), _mode(request)) if desk.run else Draft("")
    return _show(request, desk, draft.merged(begun, _patch(request.GET.get("patch", ""))))


def _mode(request: HttpRequest) -> str:
    return AS_JSON if request.GET.get("as") == AS_JSON else FORM


def _begin(request: HttpRequest, scope: Scope) -> str:
    if name := request.GET.get("clone", ""):
        run = Run.objects.of(scope.here).select_related("workspace").filter(name=name).first()
        if run is None:
            raise NotFound
        return starts.clone_text(run)
    return starts.start_text(scope.here, request.GET.get("start", ""))


def _patch(text: str) -> Any:
    """None where it is none: the document then stays as it is."""
    try:
        return json.loads(text) if text else None
    except (json.JSONDecodeError, RecursionError):
        return None


def _post(request: HttpRequest, desk: Desk) -> HttpResponse:
    post = request.POST
    now = draft.posted(dict(post.lists()))
    if post.get("preview"):
        return _previewed(request, desk, now)
    if "start" in post:
        return _submit(request, desk, _loaded(request, now))
    return _worked(request, desk, now)


def _worked(request: HttpRequest, desk: Desk, now: Draft) -> HttpResponse:
    """One step of the work on a document: nothing is submitted."""
    post = request.POST
    try:
        if "attach" in post:
            now = draft.with_files(now, _files(request))
        elif "use" in post:
            now = draft.merged(now, _patch(post["use"]))
        elif "back" in post:
            now = replace(now, text=now.was, mode=FORM)
        elif "show" in post:
            return _switched(request, desk, now, post["show"])
        else:
            now = _loaded(request, now)
    except ValueError as error:
        return _show(request, desk, now, Invalid("invalid_document", str(error)))
    checked = preview(desk.asking, now) if "check" in post else None
    return _show(request, desk, now, checked=checked)


def _loaded(request: HttpRequest, now: Draft) -> Draft:
    """With the chosen JSON file in place of the text."""
    uploaded = request.FILES.get("file")
    if uploaded is None:
        return now
    # One byte more than allowed: the document's own check then says that it is too large.
    text = uploaded.read(MAX_DOCUMENT_BYTES + 1).decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    return Draft(text, now.mode, now.was)


def _files(request: HttpRequest) -> list[tuple[str, str]]:
    """Raises ValueError."""
    files = []
    for each in request.FILES.getlist("files"):
        try:
            content = each.read(MAX_DOCUMENT_BYTES + 1).decode()
        except UnicodeDecodeError:
            raise ValueError(
                f"{each.name} is not a text in UTF-8. Put it on a drive or into the image."
            ) from None
        files.append((each.name or "file", content))
    return files


def _switched(request: HttpRequest, desk: Desk, now: Draft, show: str) -> HttpResponse:
    """Between form and JSON; what can't be read stays where it is."""
    kind, _, path = show.partition(" ")
    if kind == AS_JSON:
        if now.problems:
            return _show(request, desk, now, _unread(now))
        line = errors_place(now.text, (FieldError(path, "", ""),))[0].line if path else 0
        return _show(request, desk, replace(now, mode=AS_JSON, was=now.text, line=line))
    _, broken = draft.opened(now.text)
    if broken:
        return _show(
            request, desk, now, Invalid("invalid_document", "The form can't show this text.", errors=broken)
        )
    return _show(request, desk, replace(now, mode=FORM))


def _unread(now: Draft) -> Invalid:
    count = "1 entry needs" if len(now.problems) == 1 else f"{len(now.problems)} entries need"
    return Invalid("invalid_document", f"The run was not started: {count} a change.")


def _submit(request: HttpRequest, desk: Desk, now: Draft) -> HttpResponse:
    if now.problems:
        return _show(request, desk, now, _unread(now))
    try:
        run = desk.submit(now.text)
    except (Invalid, Conflict) as error:
        return _show(request, desk, now, error)
    messages.success(request, f"{run.name} {desk.done}", extra_tags="submitted")
    return redirect(run_address(run))


def _previewed(request: HttpRequest, desk: Desk, now: Draft) -> HttpResponse:
    seen = preview(desk.asking, now)
    context: dict[str, Any] = {"preview": seen, "draft": now, "desk": desk}
    if now.mode == FORM:
        spots = spots_of(form_of(draft.opened(now.text)[0]), dict(request.POST.lists()))
        found: Any = board.problems_by_spot(now, seen.errors, spots)
        context |= {"summaries": board.summaries(now), "counts": board.model_counts(desk.scope.here)}
    else:
        placed = errors_place(now.text, seen.errors)
        found = [[each.line, each.message] for each in placed]
        context["lines"] = placed
    context["found"] = json.dumps(found)
    return render(request, "runs/new.html#preview", context)


def _show(
    request: HttpRequest,
    desk: Desk,
    now: Draft,
    error: DomainError | None = None,
    checked: Preview | None = None,
) -> HttpResponse:
    """The page, or its form alone."""
    if now.mode == FORM and draft.opened(now.text)[1]:
        now = replace(now, mode=AS_JSON)
    errors = error.errors if error else ()
    context: dict[str, Any] = {
        "scope": desk.scope,
        "section": "runs",
        "desk": desk,
        "draft": now,
        "starts": starts.STARTS,
        "error": error,
        "preview": checked,
        "too_little": TOO_LITTLE,
        "placed": errors_place(now.text, errors),
    }
    if now.mode == FORM:
        post = dict(request.POST.lists())
        context["board"] = board.board_of(now, board.stock_of(desk.scope.here), errors, post)
        context["problems"] = _listed(now, errors)
    context["bad_lines"] = ",".join(str(each.line) for each in context["placed"])
    template = "runs/new.html#form" if is_fragment(request) else "runs/new.html"
    return render(request, template, context, status=error.status if error else 200)


def _listed(now: Draft, errors: tuple[FieldError, ...]) -> list[tuple[str, str, str]]:
    """(entry or cell, path, message) of the summary: what can't be read first."""
    spots = spots_of(form_of(draft.opened(now.text)[0]))
    told = [(name, "", message) for name, message in now.problems.items()]
    found = ((spots.of(each.path), each.path, each.message) for each in errors)
    return told + [each for each in found if each[0] not in now.problems]
