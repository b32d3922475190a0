"""Who asks for a stream: a bearer token or a browser session. All but `Rights` runs in a database thread."""

import time
from collections.abc import Callable
from importlib import import_module
from io import BytesIO

from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIRequest

from common.errors import DomainError, NotFound
from console.streams.database import in_thread
from console.streams.http import HttpError, Scope, header
from tenancy.access import Actor, workspace_for
from tenancy.authentication import bearer_of, token_find
from tenancy.models import User, Workspace
from tenancy.roles import Permission

RIGHTS_SECONDS = 30
"""How long rights are believed."""


class Rights:
    """The rights to read a stream that may last for hours: looked at again as it goes on."""

    def __init__(self, check: Callable[[], object]) -> None:
        """`check` raises HttpError when they are gone; it has just been called."""
        self._check = check
        self._checked = time.monotonic()

    async def last(self) -> bool:
        """Whether they are still there, as of RIGHTS_SECONDS ago at most."""
        if time.monotonic() - self._checked <= RIGHTS_SECONDS:
            return True
        try:
            await in_thread(self._check)
        except HttpError:
            return False
        self._checked = time.monotonic()
        return True


def actor_find(scope: Scope) -> Actor:
    """Raises HttpError 401 when nobody (valid) asks."""
    try:
        value = bearer_of(header(scope, b"authorization"))
    except ValueError as error:
        raise HttpError(401, "Not signed in", str(error)) from error
    if value is not None:
        token = token_find(value)
        if token is not None:
            return Actor(user=token.user, token=token)
        raise HttpError(
            401,
            "Not signed in",
            "This token is not valid: it is unknown, expired or revoked.",
            www_authenticate="Bearer",
        )
    user = _session_user(scope)
    if user is None:
        raise HttpError(401, "Not signed in", "Sign in, or send a token.", www_authenticate="Bearer")
    return Actor(user=user)


def _session_user(scope: Scope) -> User | None:
    request = ASGIRequest(dict(scope), BytesIO())
    store = import_module(settings.SESSION_ENGINE).SessionStore
    request.session = store(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    user = get_user(request)
    return user if isinstance(user, User) and user.is_active else None


def reader_workspace(scope: Scope, organization: str, workspace: str) -> Workspace:
    """The workspace, if whoever asks may read its runs; else HttpError."""
    actor = actor_find(scope)
    try:
        return workspace_for(actor, organization, workspace, Permission.READ_RUNS)
    except NotFound as error:
        raise HttpError(404, error.title, error.message) from error
    except DomainError as error:
        raise HttpError(error.status, error.title, error.message) from error
