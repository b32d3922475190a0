"""Secrets of a workspace: written by admins, named by runs, read by the agents of the machines that run these."""

import logging
from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from common.encryption import Unreadable, seal, unseal
from common.errors import FieldError, NotFound
from tenancy.access import Actor
from tenancy.models import RegistryCredential, Secret, Workspace
from tenancy.services import audit_record
from tenancy.stores import created, name_flaws, refuse
from wire.assignments import SHORTEST_SECRET
from wire.names import shown

LARGEST_SECRET = 32 * 1024
"""Bytes: certificates and key files fit many times."""

log = logging.getLogger(__name__)


def secrets_of(workspace: Workspace) -> QuerySet[Secret]:
    """For lists: without the encrypted values."""
    return (
        Secret.objects.filter(workspace=workspace).select_related("workspace__organization").defer("sealed")
    )


def secret_find(workspace: Workspace, name: str) -> Secret:
    """Raises NotFound."""
    found = secrets_of(workspace).filter(name=name).first()
    if found is None:
        raise NotFound(f"{workspace.slug} has no secret {shown(name)}.")
    return found


@transaction.atomic
def secret_create(*, workspace: Workspace, name: str, value: str, actor: Actor) -> Secret:
    """Raises Invalid (all that is wrong at once) and Conflict for a name that is taken."""
    refuse(*name_flaws(name), *_value_flaws(value))
    secret = Secret(workspace=workspace, name=name, changed_at=timezone.now(), changed_by=actor.name)
    secret.sealed = seal(value, secret.owner)
    created(secret, "secret", f"{workspace.slug} has a secret `{name}` already. Change its value instead.")
    store_audit(secret, "secret", "create", actor)
    return secret


@transaction.atomic
def secret_change(*, secret: Secret, value: str, actor: Actor) -> None:
    """Another value, for attempts that are placed from now on; running workers keep theirs. Raises Invalid."""
    refuse(*_value_flaws(value))
    Secret.objects.filter(id=secret.id).update(
        sealed=seal(value, secret.owner), changed_at=timezone.now(), changed_by=actor.name
    )
    store_audit(secret, "secret", "change", actor)


@transaction.atomic
def secret_remove(*, secret: Secret, actor: Actor) -> None:
    """Running workers keep it; runs that wait and name it go on waiting. Idempotent."""
    if Secret.objects.filter(id=secret.id).delete()[0]:
        store_audit(secret, "secret", "remove", actor)


def secret_values(workspace_id: int, names: Iterable[str]) -> dict[str, str]:
    """Name → value of those that are there and can be read. For the agents of machines that run who names them."""
    found = {}
    for secret in Secret.objects.filter(workspace=workspace_id, name__in=set(names)):
        try:
            found[secret.name] = unseal(bytes(secret.sealed), secret.owner)
        except Unreadable:
            log.exception("the secret %s of workspace %s can't be read", secret.name, workspace_id)
    return found


def _value_flaws(value: str) -> Iterable[FieldError]:
    yield from text_flaws("value", value)
    size = len(value.strip().encode(errors="replace"))
    if size < SHORTEST_SECRET:
        message = (
            f"A secret has at least {SHORTEST_SECRET} bytes, white space around it aside: a shorter one can't be "
            "masked in logs. Put what is not secret into `env`."
        )
        yield FieldError("value", "too_short", message)


# --- What secrets and registry credentials share ----------------------------------------------------------


def text_flaws(path: str, value: str) -> Iterable[FieldError]:
    """What no encrypted text may be. No message repeats any of it."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        yield FieldError(path, "bad_text", "This is no text: half of a surrogate pair stands alone in it.")
        return
    if size > LARGEST_SECRET:
        message = f"This has {size:,} bytes; at most {LARGEST_SECRET // 1024} KiB can be kept. Use a drive."
        yield FieldError(path, "too_long", message)
    if "\0" in value:
        yield FieldError(path, "bad_text", "This has a NUL character, which no variable can hold. Encode it.")


def store_audit(
    row: Secret | RegistryCredential,
    kind: str,
    action: str,
    actor: Actor,
    *,
    before: Any = None,
    after: Any = None,
) -> None:
    """A line of the audit log. What is encrypted is never a part of it."""
    audit_record(
        actor=actor,
        organization=row.workspace.organization,
        workspace=row.workspace,
        action=f"{kind}.{action}",
        target=row.name,
        before=before,
        after=after,
    )
