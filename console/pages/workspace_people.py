"""Members and API tokens on the Workspace page."""

from datetime import timedelta

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from common.errors import FieldError, Invalid, NotFound
from console.pages.editing import Editing, edit_page
from console.pages.errors import page
from console.pages.forms import Form, typed
from console.pages.workspace import (
    EXPIRES,
    ROLE,
    manage_scope,
    section_address,
    settings_add,
    settings_place,
    settings_refused,
)
from tenancy.members import member_add as member_create
from tenancy.members import member_change, member_find, member_remove
from tenancy.models import ApiToken
from tenancy.roles import WorkspaceRole
from tenancy.tokens import token_issue
from tenancy.tokens import token_revoke as token_take_back
from wire.names import BadName, check_line, shown

LONGEST_TITLE = 60


@page
@require_POST
def member_add(request: HttpRequest, organization: str, workspace: str) -> HttpResponse:
    scope = manage_scope(request, organization, workspace)

    def add(post: dict[str, str]) -> str:
        member = member_create(
            workspace=scope.here, user=typed(post, "user"), role=_role(post), actor=scope.actor
        )
        return f"{member.user.get_username()} is {member.role} of {scope.here.slug}."

    return settings_add(request, scope, "member", add)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def member_page(request: HttpRequest, organization: str, workspace: str, user: str) -> HttpResponse:
    """Another role, or none any more."""
    scope = manage_scope(request, organization, workspace)
    member = member_find(scope.here, user)

    def change(post: dict[str, str]) -> str:
        role = _role(post)
        member_change(member=member, role=role, actor=scope.actor)
        return f"{user} is {role} of {scope.here.slug}."

    def remove() -> str:
        member_remove(member=member, actor=scope.actor)
        return f"{user} is no member of {scope.here.slug} any more."

    editing = Editing(
        name=user,
        form=Form("member", "Save", (ROLE,)).filled({"role": member.role}),
        removal="It takes effect at once, for this person's tokens too. Runs that they started go on.",
        change=change,
        remove=remove,
        **settings_place(scope, "member"),
    )
    return edit_page(request, scope, editing)


@page
@require_POST
@never_cache
def token_add(request: HttpRequest, organization: str, workspace: str) -> HttpResponse:
    """Makes a token and shows it, this once."""
    scope, post = manage_scope(request, organization, workspace), request.POST.dict()
    try:
        token, secret = token_issue(
            actor=scope.actor,
            organization=scope.organization,
            workspace=scope.here,
            role=_role(post),
            name=_title(post),
            expires_at=timezone.now() + timedelta(days=days) if (days := _days(post)) else None,
        )
    except Invalid as error:
        return settings_refused(request, scope, "token", error)
    context = {
        "scope": scope,
        "section": "workspace",
        "token": token,
        "value": secret.value,
        "back": section_address(scope, "token"),
    }
    return render(request, "workspace/token.html", context)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def token_revoke(request: HttpRequest, organization: str, workspace: str, token: int) -> HttpResponse:
    scope = manage_scope(request, organization, workspace)
    tokens = ApiToken.objects.filter(workspace=scope.here).select_related("user", "organization", "workspace")
    found = tokens.filter(id=token).first()
    if found is None:
        raise NotFound
    back = section_address(scope, "token")
    if request.method == "POST":
        token_take_back(token=found, actor=scope.actor)
        messages.success(request, f"Token {found.name} is revoked.")
        return redirect(back)
    context = {"scope": scope, "section": "workspace", "token": found, "back": back}
    return render(request, "workspace/revoke.html", context)


def _role(post: dict[str, str]) -> str:
    """Raises Invalid for what is none."""
    role = post.get("role", "")
    if role not in WorkspaceRole.values:
        raise _invalid("role", f"{shown(role)} is no role. Choose {', '.join(WorkspaceRole.values)}.")
    return role


def _title(post: dict[str, str]) -> str:
    """What a token is for. Raises Invalid."""
    name = typed(post, "name")
    try:
        check_line(name)
    except BadName as error:
        raise _invalid("name", str(error)) from error
    if len(name) > LONGEST_TITLE:
        raise _invalid("name", f"Use at most {LONGEST_TITLE} characters.")
    return name


def _days(post: dict[str, str]) -> int:
    """After how many days a token expires; 0: never. Raises Invalid."""
    days = post.get("expires", "")
    if days not in dict(EXPIRES):
        raise _invalid("expires", "Choose one of these.")
    return int(days or 0)


def _invalid(path: str, message: str) -> Invalid:
    return Invalid("invalid", message, errors=(FieldError(path, "invalid", message),))
