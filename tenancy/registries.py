"""Registry credentials of a workspace: what machines sign in to a registry with to pull its runs' images."""

import logging
import re
from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from common.encryption import Unreadable, seal, unseal
from common.errors import FieldError, NotFound
from tenancy.access import Actor
from tenancy.models import RegistryCredential, Workspace
from tenancy.secrets import store_audit, text_flaws
from tenancy.stores import created, name_flaws, refuse
from wire.assignments import RegistryLogin
from wire.names import BadName, check_line, shown

log = logging.getLogger(__name__)

DOCKER_HUB = "docker.io"
DOCKER_HUB_NAMES = frozenset({DOCKER_HUB, "index.docker.io", "registry-1.docker.io"})
LONGEST_REGISTRY = 260
LONGEST_USERNAME = 200

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_REGISTRY = re.compile(rf"{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?")


def registry_of_image(image: str) -> str:
    """The host that an image's name begins with; images without one come from Docker Hub."""
    host, slash, _ = image.partition("/")
    named = slash and ("." in host or ":" in host or host == "localhost")
    return registry_plain(host) if named else DOCKER_HUB


def registry_plain(host: str) -> str:
    """One spelling for each registry."""
    return DOCKER_HUB if host in DOCKER_HUB_NAMES else host


def credentials_of(workspace: Workspace) -> QuerySet[RegistryCredential]:
    """For lists: without the encrypted passwords."""
    found = RegistryCredential.objects.filter(workspace=workspace)
    return found.select_related("workspace__organization").defer("sealed")


def credential_find(workspace: Workspace, name: str) -> RegistryCredential:
    """Raises NotFound."""
    found = credentials_of(workspace).filter(name=name).first()
    if found is None:
        raise NotFound(f"{workspace.slug} has no registry credential {shown(name)}.")
    return found


def credential_logins(workspace_id: int, names: Iterable[str]) -> dict[str, RegistryLogin]:
    """By name, of those that are there and can be read. For the agents of machines that run who names them."""
    found = {}
    for row in RegistryCredential.objects.filter(workspace=workspace_id, name__in=set(names)):
        try:
            password = unseal(bytes(row.sealed), row.owner)
        except Unreadable:
            log.exception("the registry credential %s of workspace %s can't be read", row.name, workspace_id)
            continue
        found[row.name] = RegistryLogin(
            name=row.name, registry=row.registry, username=row.username, password=password
        )
    return found


@transaction.atomic
def credential_create(
    *, workspace: Workspace, name: str, registry: str, username: str, secret: str, actor: Actor
) -> RegistryCredential:
    """Raises Invalid (all that is wrong at once) and Conflict for a name that is taken."""
    refuse(*name_flaws(name), *_flaws(registry, username), *_secret_flaws(secret))
    row = RegistryCredential(
        workspace=workspace,
        name=name,
        registry=registry_plain(registry),
        username=username,
        changed_at=timezone.now(),
        changed_by=actor.name,
    )
    row.sealed = seal(secret, row.owner)
    taken = f"{workspace.slug} has a registry credential `{name}` already. Change it instead."
    created(row, "credential", taken)
    store_audit(row, "registry_credential", "create", actor, after=_shown(row))
    return row


@transaction.atomic
def credential_change(
    *,
    credential: RegistryCredential,
    actor: Actor,
    registry: str | None = None,
    username: str | None = None,
    secret: str | None = None,
) -> None:
    """Changes what is given; images that are pulled from now on use it. Raises Invalid."""
    row = RegistryCredential.objects.select_for_update().get(id=credential.id)
    before = _shown(row)
    row.registry = row.registry if registry is None else registry_plain(registry)
    row.username = row.username if username is None else username
    refuse(*_flaws(row.registry, row.username), *(() if secret is None else _secret_flaws(secret)))
    if secret is not None:
        row.sealed = seal(secret, row.owner)
    row.changed_at, row.changed_by = timezone.now(), actor.name
    row.save()
    after = _shown(row) | ({"secret": "changed"} if secret is not None else {})
    store_audit(credential, "registry_credential", "change", actor, before=before, after=after)


@transaction.atomic
def credential_remove(*, credential: RegistryCredential, actor: Actor) -> None:
    """Runs that wait and name it go on waiting. Idempotent."""
    if RegistryCredential.objects.filter(id=credential.id).delete()[0]:
        before = _shown(credential)
        store_audit(credential, "registry_credential", "remove", actor, before=before)


def _shown(row: RegistryCredential) -> dict[str, Any]:
    return {"registry": row.registry, "username": row.username}


def _flaws(registry: str, username: str) -> Iterable[FieldError]:
    if len(registry) > LONGEST_REGISTRY or not _REGISTRY.fullmatch(registry):
        message = (
            f"{shown(registry)} is no registry. Write its host name, with a port where it needs one: `nvcr.io`, "
            "`registry.example.com:5000`."
        )
        yield FieldError("registry", "bad_registry", message)
    try:
        check_line(username)
    except BadName as error:
        yield FieldError("username", "bad_text", str(error))
    if len(username) > LONGEST_USERNAME:
        message = f"A user name has at most {LONGEST_USERNAME} characters."
        yield FieldError("username", "too_long", message)


def _secret_flaws(secret: str) -> Iterable[FieldError]:
    yield from text_flaws("secret", secret)
    if not secret.strip():
        yield FieldError("secret", "too_short", "The password or token is empty. Give one.")
