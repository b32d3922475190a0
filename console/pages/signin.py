"""Sign-in by a signed link, as `./dev demo` prints it, and what a person chooses for all pages."""

from datetime import timedelta

from django.conf import settings
from django.contrib.auth import login
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from common.errors import NotFound
from console.context import THEME_COOKIE, THEMES
from console.pages.errors import page, refused
from console.pages.scope import workspace_last
from machines.models import Cluster
from tenancy.access import workspaces_of
from tenancy.authentication import actor_of
from tenancy.models import User

DEMO_LOGIN_SALT = "demo-login"
DEMO_LOGIN_LIFE = timedelta(hours=12)
BACKEND = "allauth.account.auth_backends.AuthenticationBackend"
ONE_YEAR = 365 * 24 * 3600


@require_safe
@never_cache
def demo_login(request: HttpRequest, token: str) -> HttpResponse:
    """Signs in whoever the link was made for. Only where the demo's links are switched on."""
    user = _user_of(token) if settings.DEMO_LOGIN else None
    if user is None:
        return refused(request, NotFound())
    login(request, user, backend=BACKEND)
    return redirect("home")


def _user_of(token: str) -> User | None:
    signer = signing.TimestampSigner(salt=DEMO_LOGIN_SALT)
    try:
        user_id = signer.unsign(token, max_age=DEMO_LOGIN_LIFE)
    except signing.BadSignature:
        return None
    return User.objects.filter(id=user_id, is_active=True).first()


@page
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """To the runs of the workspace last looked at, or what a person without one may see."""
    actor = actor_of(request)
    workspace = workspace_last(request, workspaces_of(actor))
    if workspace is not None:
        return redirect("runs", organization=workspace.organization.slug, workspace=workspace.slug)
    cluster = (
        Cluster.objects.filter(organization__memberships__user=actor.user)
        .select_related("organization")
        .order_by("organization__slug", "slug")
        .first()
    )
    if cluster is not None:
        return redirect("machines", organization=cluster.organization.slug, cluster=cluster.slug)
    return render(request, "nowhere.html")


@require_POST
def theme_set(request: HttpRequest) -> HttpResponse:
    """Keeps System, Light or Dark in a cookie, so that the server draws it right at once."""
    back = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}):
        back = reverse("home")
    response = redirect(back)
    theme = request.POST.get("theme", "")
    if theme in THEMES:
        response.set_cookie(
            THEME_COOKIE, theme, max_age=ONE_YEAR, samesite="Lax", secure=request.is_secure(), httponly=True
        )
    else:
        response.delete_cookie(THEME_COOKIE, samesite="Lax")
    return response
