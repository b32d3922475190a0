"""Errors as pages. `page` wraps every view: sign-in first, then refusals become pages of their own."""

import logging
import secrets
import sys
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from common.errors import DomainError, NotFound
from common.problem import problem_response
from console.context import theme_of
from console.pages.run_form import draft

log = logging.getLogger(__name__)
P = ParamSpec("P")
PageView = Callable[Concatenate[HttpRequest, P], HttpResponse]

KEPT_FIELD = "document"
"""Name of the field with a run's document."""
NOT_TYPED = frozenset(
    {"csrfmiddlewaretoken", "load", "save", "start", "preview", "check", "show", "back", "use", "attach"}
)
"""Fields that nobody filled in: the token is another one after the sign-in, and what was pressed is pressed again."""
NEVER_SHOWN = frozenset({"value", "secret", "password"})
"""Fields of secrets: what was typed there is not handed back by a page."""


def page(view: PageView[P]) -> PageView[P]:
    """A page for people who are signed in."""

    @wraps(view)
    def wrapped(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not request.user.is_authenticated:
            return signed_out(request)
        if "\0" in request.path:
            return refused(request, NotFound())
        if _has_nul(request):
            return render(request, "400.html", status=400)
        try:
            response = view(request, *args, **kwargs)
        except DomainError as error:
            return refused(request, error)
        # One address answers with the page or with its fragments: no cache may mix them up.
        response.headers["Vary"] = ", ".join(filter(None, [response.headers.get("Vary"), "HX-Request"]))
        response.headers.setdefault("Cache-Control", "no-cache, private")
        return response

    return wrapped


def is_api(request: HttpRequest) -> bool:
    """Programs get problem+json, whatever failed."""
    return request.path.startswith("/api/")


def _has_nul(request: HttpRequest) -> bool:
    """NUL is no character of PostgreSQL's texts, and no person types one. Documents have a check of their own."""
    forms = ((request.GET, ""), (request.POST, KEPT_FIELD))
    return any(
        "\0" in text
        for form, but in forms
        for name in form
        for text in (name, *(form.getlist(name) if name != but else ()))
    )


def is_fragment(request: HttpRequest) -> bool:
    return request.headers.get("HX-Request") == "true"


def signed_out(request: HttpRequest) -> HttpResponse:
    """To the sign-in page and back; what was typed into a form is kept on a page of its own."""
    if is_fragment(request):
        return HttpResponse("You were signed out.", status=401, content_type="text/plain")
    if _typed(request):
        return kept(request, "You were signed out.", status=401)
    return redirect_to_login(request.get_full_path() if request.method == "GET" else request.path)


def _typed(request: HttpRequest) -> list[tuple[str, str]]:
    """Name and text of each field that the form brought, in its order."""
    sent = ((name, value) for name in request.POST for value in request.POST.getlist(name))
    return [(name, value) for name, value in sent if name not in NOT_TYPED]


def kept(request: HttpRequest, why: str, *, status: int) -> HttpResponse:
    """Hands back what was typed, secrets excepted, in a form that goes on where the first one went.

    Of a run's form the document is shown; its fields, which say what was changed in that, go along unseen.
    """
    typed = _typed(request)
    of_run = KEPT_FIELD in request.POST
    context = {
        "why": why,
        "text": draft.posted(dict(request.POST.lists())).text if of_run else None,
        "others": [each for each in typed if each[0] not in {KEPT_FIELD, *NEVER_SHOWN}],
        "secret": any(name in NEVER_SHOWN for name, _ in typed),
        "action": request.path if of_run else request.get_full_path(),
    }
    if of_run and request.POST.get("mode") == draft.FORM:
        context["under"] = request.POST[KEPT_FIELD]
    return render(request, "errors/kept.html", context, status=status)


def refused(request: HttpRequest, error: DomainError) -> HttpResponse:
    if is_fragment(request):
        return HttpResponse(error.message, status=error.status, content_type="text/plain; charset=utf-8")
    template = {404: "404.html", 403: "403.html"}.get(error.status, "errors/refused.html")
    return render(request, template, {"error": error}, status=error.status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001 - Django's signature
    if is_api(request):
        return problem_response(400, "Bad request", "The request can't be read.", errors=[])
    return render(request, "400.html", status=400)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001 - Django's signature
    if is_api(request):
        return problem_response(404, "No such address", f"The API has no {request.path}.", errors=[])
    if is_fragment(request):
        return HttpResponse("Nothing here that you may see.", status=404, content_type="text/plain")
    return render(request, "404.html", status=404)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001 - Django's signature
    return render(request, "403.html", status=403)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The page was older than the sign-in. Text sent by our own page is kept; others' text is not shown back."""
    log.warning("CSRF check failed for %s: %s", request.path, reason)
    if request.headers.get("Sec-Fetch-Site") == "same-origin" and _typed(request):
        signed_in = request.user.is_authenticated
        why = "You have signed in again since this page was opened." if signed_in else "You were signed out."
        return kept(request, why, status=403)
    return render(request, "errors/stale.html", status=403)


def server_error(request: HttpRequest) -> HttpResponse:
    """Reads nothing from the database: it may be what failed."""
    reference = f"{secrets.token_hex(2)}-{secrets.token_hex(2)}"
    # Called by Django while it handles the exception, which no handler of ours surrounds.
    log.error("reference %s: %s %s failed", reference, request.method, request.path, exc_info=sys.exc_info())
    if is_api(request):
        detail = f"This failed on our side; nothing was changed. Its reference in the log is {reference}."
        return problem_response(500, "Failed on our side", detail, reference=reference, errors=[])
    context = {"reference": reference, "theme": theme_of(request)}
    return HttpResponse(render_to_string("500.html", context), status=500)
