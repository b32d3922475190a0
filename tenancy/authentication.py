"""Bearer tokens of the API."""

from datetime import timedelta

from django.http import HttpRequest
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from common.secrets import secret_digest
from tenancy.access import Actor
from tenancy.models import ApiToken, User

LAST_USED_PRECISION = timedelta(minutes=1)
"""How old "last used" may be before a request writes it again."""


def token_find(value: str) -> ApiToken | None:
    """The usable token with this value, with its maker; None when there is none."""
    token = (
        ApiToken.objects.usable()
        .select_related("user", "organization", "workspace")
        .filter(digest=secret_digest(value), user__is_active=True)
        .first()
    )
    if token is not None:
        _mark_used(token)
    return token


def _mark_used(token: ApiToken) -> None:
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at > LAST_USED_PRECISION:
        ApiToken.objects.filter(id=token.id).update(last_used_at=now)


def bearer_of(header: bytes) -> str | None:
    """The value of an `Authorization: Bearer …` header; None when it is another scheme.

    Raises ValueError when the header is malformed.
    """
    parts = header.split()
    if not parts or parts[0].lower() != b"bearer":
        return None
    if len(parts) != 2:  # noqa: PLR2004 - scheme and value
        raise ValueError("The Authorization header must be: Bearer <token>.")
    return parts[1].decode("latin-1")


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        try:
            value = bearer_of(get_authorization_header(request))
        except ValueError as error:
            raise AuthenticationFailed(str(error)) from error
        if value is None:
            return None
        token = token_find(value)
        if token is None:
            raise AuthenticationFailed("This token is not valid: it is unknown, expired or revoked.")
        return token.user, token

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002 - DRF's signature
        return "Bearer"


def actor_of(request: Request | HttpRequest) -> Actor:
    """Who makes this (authenticated) request."""
    token = getattr(request, "auth", None)
    user = request.user
    assert isinstance(user, User)  # noqa: S101 - the views require sign-in first
    return Actor(
        user=user,
        token=token if isinstance(token, ApiToken) else None,
        address=request.META.get("REMOTE_ADDR") or None,
    )
