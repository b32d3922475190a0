"""Secrets and registry credentials on the Workspace page: added there, changed and removed on pages of their own."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from common.errors import Conflict, DomainError, Invalid
from console.pages.errors import page
from console.pages.forms import Field, Form, typed, typed_secret
from console.pages.scope import Scope
from console.pages.workspace import (
    PASSWORD,
    USERNAME,
    VALUE,
    manage_scope,
    settings_address,
    settings_redirect,
    settings_refused,
)
from tenancy.models import RegistryCredential, Secret
from tenancy.registries import credential_change, credential_create, credential_find, credential_remove
from tenancy.secrets import secret_change, secret_create, secret_find, secret_remove

SECRETS, CREDENTIALS = "secrets", "credentials"
"""Ids of the sections of the Workspace page."""


@page
@require_POST
def secret_add(request: HttpRequest, organization: str, workspace: str) -> HttpResponse:
    scope, post = manage_scope(request, organization, workspace), request.POST.dict()
    try:
        secret = secret_create(
            workspace=scope.here,
            name=typed(post, "name"),
            value=typed_secret(post, "value"),
            actor=scope.actor,
        )
    except (Invalid, Conflict) as error:
        return settings_refused(request, scope, "secret", error)
    messages.success(request, f"Secret {secret.name} is kept.")
    return settings_redirect(scope, SECRETS)


@page
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def secret_page(request: HttpRequest, organization: str, workspace: str, secret: str) -> HttpResponse:
    """Another value, or none any more."""
    scope = manage_scope(request, organization, workspace)
    found = secret_find(scope.here, secret)
    if request.method != "POST":
        return _secret_render(request, scope, found)
    if "remove" in request.POST:
        secret_remove(secret=found, actor=scope.actor)
        messages.success(request, f"Secret {found.name} is gone.")
        return settings_redirect(scope, SECRETS)
    try:
        secret_change(secret=found, value=typed_secret(request.POST.dict(), "value"), actor=scope.actor)
    except Invalid as error:
        return _secret_render(request, scope, found, error)
    messages.success(request, f"Secret {found.name} has its new value. Workers that run keep the old one.")
    return settings_redirect(scope, SECRETS)


def _secret_render(
    request: HttpRequest, scope: Scope, secret: Secret, error: DomainError | None = None
) -> HttpResponse:
    form = Form("secret", "Change value", (VALUE,))
    removal = "Workers that run keep it. Runs that wait and name it go on waiting until it is there again."
    return edit_render(request, scope, SECRETS, secret.name, form, removal, error)


@page
@require_POST
def credential_add(request: HttpRequest, organization: str, workspace: str) -> HttpResponse:
    scope, post = manage_scope(request, organization, workspace), request.POST.dict()
    try:
        credential = credential_create(
            workspace=scope.here,
            name=typed(post, "name"),
            registry=typed(post, "registry"),
            username=typed(post, "username"),
            secret=typed_secret(post, "secret"),
            actor=scope.actor,
        )
    except (Invalid, Conflict) as error:
        return settings_refused(request, scope, "credential", error)
    messages.success(request, f"Registry credential {credential.name} is kept.")
    return settings_redirect(scope, CREDENTIALS)


@page
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def credential_page(request: HttpRequest, organization: str, workspace: str, credential: str) -> HttpResponse:
    """Another registry, user or password, or none any more."""
    scope, post = manage_scope(request, organization, workspace), request.POST.dict()
    found = credential_find(scope.here, credential)
    if request.method != "POST":
        return _credential_render(request, scope, found)
    if "remove" in post:
        credential_remove(credential=found, actor=scope.actor)
        messages.success(request, f"Registry credential {found.name} is gone.")
        return settings_redirect(scope, CREDENTIALS)
    try:
        credential_change(
            credential=found,
            actor=scope.actor,
            registry=typed(post, "registry"),
            username=typed(post, "username"),
            secret=typed_secret(post, "secret") or None,
        )
    except Invalid as error:
        return _credential_render(request, scope, found, error)
    messages.success(request, f"Registry credential {found.name} is changed.")
    return settings_redirect(scope, CREDENTIALS)


def _credential_render(
    request: HttpRequest, scope: Scope, credential: RegistryCredential, error: DomainError | None = None
) -> HttpResponse:
    keep = Field(PASSWORD.name, PASSWORD.title, PASSWORD.kind, "Leave it empty to keep the present one.")
    form = Form("credential", "Save", (Field("registry", "Registry"), USERNAME, keep))
    form = form.filled({"registry": credential.registry, "username": credential.username})
    removal = "Runs that wait and name it go on waiting until it is there again."
    return edit_render(request, scope, CREDENTIALS, credential.name, form, removal, error)


def edit_render(
    request: HttpRequest,
    scope: Scope,
    section: str,
    name: str,
    form: Form,
    removal: str,
    error: DomainError | None = None,
) -> HttpResponse:
    """A page for one row of a section: its form, and what removing it would do."""
    if error is not None:
        form = form.filled(request.POST.dict()).refused(error)
    context = {
        "scope": scope,
        "section": "workspace",
        "name": name,
        "form": form,
        "removal": removal,
        "crumb": f"Workspace {scope.here.slug}",
        "back": f"{settings_address(scope)}#{section}",
    }
    return render(request, "workspace/edit.html", context, status=422 if form.wrong else 200)
