"""API tokens that people make for themselves and for programs, never above their own role."""

from datetime import datetime

from django.db import transaction
from django.utils import timezone

from common.errors import FieldError, Forbidden, Invalid
from common.secrets import NewSecret
from tenancy.access import Actor, organization_grants, workspace_grants
from tenancy.models import ApiToken, Organization, Workspace
from tenancy.roles import ORGANIZATION_GRANTS, WORKSPACE_GRANTS
from tenancy.services import audit_record, token_create


@transaction.atomic
def token_issue(
    *,
    actor: Actor,
    organization: Organization,
    workspace: Workspace | None,
    role: str,
    name: str,
    expires_at: datetime | None,
) -> tuple[ApiToken, NewSecret]:
    """A new token of `actor`; its value is in the answer and nowhere else.

    Raises Invalid for a role of the other kind or a time that is over, Forbidden for a role above the actor's.
    """
    if expires_at is not None and expires_at <= timezone.now():
        message = (
            "This time is over. Give one in the future, or leave it out for a token that does not expire."
        )
        raise Invalid("expired", message, errors=(FieldError("expires_at", "expired", message),))
    _require_not_above(actor, organization, workspace, role)
    secret = token_create(
        user=actor.user,
        organization=organization,
        workspace=workspace,
        role=role,
        name=name,
        expires_at=expires_at,
    )
    token = ApiToken.objects.select_related("user", "organization", "workspace").get(digest=secret.digest)
    _audit(token, actor, "create", {"role": role, "expires_at": expires_at and expires_at.isoformat()})
    return token, secret


def _require_not_above(
    actor: Actor, organization: Organization, workspace: Workspace | None, role: str
) -> None:
    if workspace is not None:
        asked, own = WORKSPACE_GRANTS.get(role, frozenset()), workspace_grants(actor, workspace)
    else:
        asked, own = ORGANIZATION_GRANTS.get(role, frozenset()), organization_grants(actor, organization)
    if not asked <= own:
        raise Forbidden(f"A token may not have a role above its maker's, and {role} is above yours.")


@transaction.atomic
def token_revoke(*, token: ApiToken, actor: Actor) -> None:
    """Nobody can use it any more, from the next request on. Idempotent."""
    if ApiToken.objects.filter(id=token.id, revoked_at=None).update(revoked_at=timezone.now()):
        _audit(token, actor, "revoke", None)


def _audit(token: ApiToken, actor: Actor, action: str, after: object) -> None:
    audit_record(
        actor=actor,
        organization=token.organization,
        workspace=token.workspace,
        action=f"token.{action}",
        target=f"{token.name} ({token.prefix}…)",
        after=after,
    )
