"""Who belongs to a workspace, and with which role."""

from django.db import IntegrityError, transaction
from django.db.models import Q

from common.errors import Conflict, FieldError, Invalid, NotFound
from tenancy.access import Actor
from tenancy.models import Membership, User, Workspace
from tenancy.services import audit_record
from wire.names import shown


def member_find(workspace: Workspace, username: str) -> Membership:
    """Raises NotFound."""
    found = Membership.objects.select_related("user").filter(workspace=workspace, user__username=username)
    member = found.first()
    if member is None:
        raise NotFound(f"{workspace.slug} has no member {shown(username)}.")
    return member


@transaction.atomic
def member_add(*, workspace: Workspace, user: str, role: str, actor: Actor) -> Membership:
    """Gives a person of the organization (user name or e-mail address) a role in the workspace.

    Raises Invalid for somebody who does not belong to the organization, Conflict for a member.
    """
    person = _person(workspace, user)
    try:
        with transaction.atomic():
            member = Membership.objects.create(workspace=workspace, user=person, role=role)
    except IntegrityError as error:
        message = f"{person.get_username()} is a member of {workspace.slug} already. Change the role instead."
        raise Conflict("member", message, errors=(FieldError("user", "member", message),)) from error
    _audit(member, actor, "add", None, role)
    return member


def _person(workspace: Workspace, user: str) -> User:
    """Only people of the organization can be found: an answer tells nobody who else has an account."""
    people = User.objects.filter(
        organization_memberships__organization=workspace.organization_id, is_active=True
    )
    found = list(people.filter(Q(username=user) | Q(email__iexact=user))[:2])
    if len(found) != 1:
        slug = workspace.organization.slug
        message = f"{slug} has no member {shown(user)}. An owner adds people to the organization first."
        raise Invalid("unknown_user", message, errors=(FieldError("user", "unknown_user", message),))
    return found[0]


@transaction.atomic
def member_change(*, member: Membership, role: str, actor: Actor) -> Membership:
    """Another role, from the next request on; tokens of this person follow."""
    locked = Membership.objects.select_for_update().select_related("user", "workspace").get(id=member.id)
    was = locked.role
    if was != role:
        locked.role = role
        locked.save(update_fields=["role"])
        _audit(locked, actor, "change", was, role)
    return locked


@transaction.atomic
def member_remove(*, member: Membership, actor: Actor) -> None:
    """Takes the role away, from the next request on; tokens of this person stop working with it."""
    if Membership.objects.filter(id=member.id).delete()[0]:
        _audit(member, actor, "remove", member.role, None)


def _audit(member: Membership, actor: Actor, action: str, before: str | None, after: str | None) -> None:
    workspace = member.workspace
    audit_record(
        actor=actor,
        organization=workspace.organization,
        workspace=workspace,
        action=f"member.{action}",
        target=member.user.get_username(),
        before=before and {"role": before},
        after=after and {"role": after},
    )
