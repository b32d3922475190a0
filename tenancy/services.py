"""Writes of tenancy."""

from datetime import datetime
from typing import Any

from common.errors import FieldError, Invalid
from common.secrets import NewSecret, secret_make
from tenancy.access import Actor
from tenancy.models import ApiToken, AuditEvent, Organization, User, Workspace
from tenancy.roles import OrganizationRole, WorkspaceRole


def token_create(
    *,
    user: User,
    organization: Organization,
    workspace: Workspace | None,
    role: str,
    name: str,
    expires_at: datetime | None = None,
) -> NewSecret:
    """A new API token; its value is in the answer and nowhere else.

    Raises Invalid for a role of the other kind: a workspace's token has a workspace's role.
    """
    known = WorkspaceRole.values if workspace else OrganizationRole.values
    if role not in known:
        message = f"`{role}` is no role of this token; it may be {', '.join(known)}."
        raise Invalid("role", message, errors=(FieldError("role", "role", message),))
    secret = secret_make("ast")
    ApiToken.objects.create(
        user=user,
        organization=organization,
        workspace=workspace,
        role=role,
        name=name,
        expires_at=expires_at,
        prefix=secret.prefix,
        digest=secret.digest,
    )
    return secret


def audit_record(
    *,
    actor: Actor,
    organization: Organization,
    action: str,
    target: str,
    workspace: Workspace | None = None,
    before: Any = None,
    after: Any = None,
) -> None:
    """One line of the audit log, in the caller's transaction: what is rolled back was never done."""
    AuditEvent.objects.create(
        organization=organization,
        workspace=workspace,
        actor=actor.name,
        address=actor.address,
        action=action,
        target=target,
        before=before,
        after=after,
    )
