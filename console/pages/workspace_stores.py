"""Secrets and registry credentials on the Workspace page: added there, changed and removed on pages of their own."""

from dataclasses import replace

from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from console.pages.editing import Editing, edit_page
from console.pages.errors import page
from console.pages.forms import Field, Form, typed, typed_secret
from console.pages.workspace import (
    PASSWORD,
    USERNAME,
    VALUE,
    manage_scope,
    settings_add,
    settings_place,
)
from tenancy.registries import credential_change, credential_create, credential_find, credential_remove
from tenancy.secrets import secret_change, secret_create, secret_find, secret_remove

CREDENTIAL_CHANGE = Form(
    "credential",
    "Save",
    (
        Field("registry", "Registry"),
        USERNAME,
        replace(PASSWORD, hint="Leave it empty to keep the present one."),
    ),
)


@page
@require_POST
def secret_add(request: HttpRequest, organization: str, workspace: str) -> HttpResponse:
    scope = manage_scope(request, organization, workspace)

    def add(post: dict[str, str]) -> str:
        name, value = typed(post, "name"), typed_secret(post, "value")
        secret_create(workspace=scope.here, name=name, value=value, actor=scope.actor)
        return f"Secret {name} is kept."

    return settings_add(request, scope, "secret", add)


@page
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def secret_page(request: HttpRequest, organization: str, workspace: str, secret: str) -> HttpResponse:
    """Another value, or none any more."""
    scope = manage_scope(request, organization, workspace)
    found = secret_find(scope.here, secret)

    def change(post: dict[str, str]) -> str:
        secret_change(secret=found, value=typed_secret(post, "value"), actor=scope.actor)
        return f"Secret {found.name} has its new value. Workers that run keep the old one."

    def remove() -> str:
        secret_remove(secret=found, actor=scope.actor)
        return f"Secret {found.name} is gone."

    editing = Editing(
        name=found.name,
        form=Form("secret", "Change value", (VALUE,)),
        removal="Workers that run keep it. Runs that wait and name it go on waiting until it is there again.",
        change=change,
        remove=remove,
        **settings_place(scope, "secret"),
    )
    return edit_page(request, scope, editing)


@page
@require_POST
def credential_add(request: HttpRequest, organization: str, workspace: str) -> HttpResponse:
    scope = manage_scope(request, organization, workspace)

    def add(post: dict[str, str]) -> str:
        credential = credential_create(
            workspace=scope.here,
            name=typed(post, "name"),
            registry=typed(post, "registry"),
            username=typed(post, "username"),
            secret=typed_secret(post, "secret"),
            actor=scope.actor,
        )
        return f"Registry credential {credential.name} is kept."

    return settings_add(request, scope, "credential", add)


@page
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def credential_page(request: HttpRequest, organization: str, workspace: str, credential: str) -> HttpResponse:
    """Another registry, user or password, or none any more."""
    scope = manage_scope(request, organization, workspace)
    found = credential_find(scope.here, credential)

    def change(post: dict[str, str]) -> str:
        credential_change(
            credential=found,
            actor=scope.actor,
            registry=typed(post, "registry"),
            username=typed(post, "username"),
            secret=typed_secret(post, "secret") or None,
        )
        return f"Registry credential {found.name} is changed."

    def remove() -> str:
        credential_remove(credential=found, actor=scope.actor)
        return f"Registry credential {found.name} is gone."

    editing = Editing(
        name=found.name,
        form=CREDENTIAL_CHANGE.filled({"registry": found.registry, "username": found.username}),
        removal="Runs that wait and name it go on waiting until it is there again.",
        change=change,
        remove=remove,
        **settings_place(scope, "credential"),
    )
    return edit_page(request, scope, editing)
