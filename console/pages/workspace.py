"""The Workspace page: what its runs may use, and, for admins, who may do what in it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from common.errors import Conflict, DomainError, Invalid
from console.pages.errors import page
from console.pages.forms import SECRET, Field, Form
from console.pages.scope import Scope, workspace_scope
from machines.drives import drive_access_of
from machines.models import WorkspacePool
from runs.usage import gpus_used
from tenancy.models import ApiToken, Membership, Workspace
from tenancy.registries import credentials_of
from tenancy.roles import Permission, WorkspaceRole
from tenancy.secrets import secrets_of

ROLES = tuple((role.value, role.label) for role in WorkspaceRole)
EXPIRES = (("30", "in 30 days"), ("90", "in 90 days"), ("365", "in a year"), ("", "never"))

VALUE = Field(
    "value", "Value", SECRET, "At least 8 bytes, so that it can be masked in logs. Nobody is shown it again."
)
USERNAME = Field("username", "User name")
PASSWORD = Field("secret", "Password or token", SECRET, "Nobody is shown it again.")
ROLE = Field("role", "Role", "select", choices=ROLES, value=WorkspaceRole.EDITOR)

FORMS = (
    Form(
        "secret",
        "Add secret",
        (Field("name", "Name", hint="Runs name it in secret_refs: letters, digits and -."), VALUE),
    ),
    Form(
        "credential",
        "Add registry credential",
        (
            Field("name", "Name", hint="Runs name it in registry_credential."),
            Field("registry", "Registry", hint="Its host, such as nvcr.io."),
            USERNAME,
            PASSWORD,
        ),
    ),
    Form(
        "member",
        "Add member",
        (Field("user", "User name or e-mail address", hint="Somebody of the organization."), ROLE),
    ),
    Form(
        "token",
        "Make token",
        (
            Field("name", "What it is for"),
            ROLE,
            Field("expires", "Expires", "select", choices=EXPIRES, value="90"),
        ),
    ),
)


@page
@require_safe
def settings(request: HttpRequest, organization: str, workspace: str) -> HttpResponse:
    return settings_render(request, workspace_scope(request, organization, workspace))


def settings_render(request: HttpRequest, scope: Scope, wrong: Form | None = None) -> HttpResponse:
    """`wrong`: a form of the page that was sent and refused."""
    context = {
        "scope": scope,
        "section": "workspace",
        "pools": pools_used(scope.here),
        "drives": list(drive_access_of(scope.here).order_by("volume__name")),
        **(_stores(scope) if scope.may_write or scope.may_manage else {}),
        **(_people(scope) if scope.may_manage else {}),
        "wrong": wrong,
    }
    if scope.may_manage:
        forms = {form.key: replace(form, action=_address(scope, f"{form.key}_add")) for form in FORMS}
        context["forms"] = forms | (
            {wrong.key: replace(wrong, action=forms[wrong.key].action)} if wrong else {}
        )
    return render(request, "workspace/settings.html", context, status=422 if wrong else 200)


def settings_refused(request: HttpRequest, scope: Scope, key: str, error: DomainError) -> HttpResponse:
    """The page again, with what was typed into the form `key` and what is wrong with it."""
    form = next(each for each in FORMS if each.key == key)
    return settings_render(request, scope, form.filled(request.POST.dict()).refused(error))


def settings_add(
    request: HttpRequest, scope: Scope, key: str, add: Callable[[dict[str, str]], str]
) -> HttpResponse:
    """Takes the page's form `key`. `add` does it and returns what is said then."""
    try:
        messages.success(request, add(request.POST.dict()))
    except (Invalid, Conflict) as error:
        return settings_refused(request, scope, key, error)
    return redirect(section_address(scope, key))


def settings_place(scope: Scope, key: str) -> dict[str, str]:
    """Where a page for one row of a section stands."""
    return {
        "section": "workspace",
        "crumb": f"Workspace {scope.here.slug}",
        "back": section_address(scope, key),
    }


def section_address(scope: Scope, key: str) -> str:
    """Of the section that has the form `key`."""
    return f"{_address(scope, 'settings')}#{key}s"


def _address(scope: Scope, name: str) -> str:
    return reverse(name, args=[scope.organization.slug, scope.here.slug])


def _stores(scope: Scope) -> dict[str, Any]:
    return {
        "secrets": list(secrets_of(scope.here).order_by("name")),
        "credentials": list(credentials_of(scope.here).order_by("name")),
    }


def _people(scope: Scope) -> dict[str, Any]:
    members = Membership.objects.filter(workspace=scope.here).select_related("user")
    tokens = ApiToken.objects.usable().filter(workspace=scope.here).select_related("user")
    return {
        "members": list(members.order_by("user__username")),
        "tokens": list(tokens.order_by("-id")),
    }


def pools_used(workspace: Workspace) -> list[dict[str, Any]]:
    """The workspace's pools with its limits and the GPUs that its runs hold there, by cluster and name."""
    used = gpus_used(workspace)
    access = WorkspacePool.objects.filter(workspace=workspace).select_related("pool__cluster")
    return [
        {
            "pool": each.pool.slug,
            "cluster": each.pool.cluster.slug,
            "cap": each.gpu_cap,
            "guaranteed": each.guaranteed_gpus,
            "used": used.get(each.pool_id, 0),
        }
        for each in access.order_by("pool__cluster__slug", "pool__slug")
    ]


def manage_scope(request: HttpRequest, organization: str, workspace: str) -> Scope:
    """For what admins do."""
    return workspace_scope(request, organization, workspace, Permission.MANAGE_WORKSPACE)
