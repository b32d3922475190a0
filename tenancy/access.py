"""Who asks, and what they may do: every view and endpoint asks here for its workspace or organization."""

from dataclasses import dataclass

from common.errors import Forbidden, NotFound
from tenancy.models import ApiToken, Membership, Organization, OrganizationMembership, User, Workspace
from tenancy.roles import ORGANIZATION_GRANTS, WORKSPACE_GRANTS, OrganizationRole, Permission, WorkspaceRole

NOBODY: frozenset[Permission] = frozenset()


@dataclass(frozen=True, slots=True)
class Actor:
    """A signed-in person, or a token acting for its maker with at most the maker's role."""

    user: User
    token: ApiToken | None = None
    address: str | None = None

    @property
    def name(self) -> str:
        return (
            f"{self.user.get_username()} (token {self.token.name})"
            if self.token
            else self.user.get_username()
        )


def workspace_grants(actor: Actor, workspace: Workspace) -> frozenset[Permission]:
    """What `actor` may do in `workspace`, by the database of now: losing a role takes effect at once."""
    granted = _user_organization_grants(actor.user, workspace.organization_id) | _user_workspace_grants(
        actor.user, workspace
    )
    return granted & _token_workspace_grants(actor.token, workspace) if actor.token else granted


def organization_grants(actor: Actor, organization: Organization) -> frozenset[Permission]:
    """What `actor` may do with the organization's machines: its own role there, or any workspace's reading."""
    granted = _user_organization_grants(actor.user, organization.id)
    member = Membership.objects.filter(user=actor.user, workspace__organization=organization)
    if actor.user.is_active and member.exists():
        granted |= {Permission.READ_MACHINES}
    token = actor.token
    if token is None:
        return granted
    if token.organization_id != organization.id:
        return NOBODY
    if token.workspace_id is None:
        return granted & ORGANIZATION_GRANTS[token.role]
    return granted & {Permission.READ_MACHINES}


def workspace_for(actor: Actor, organization: str, workspace: str, need: Permission) -> Workspace:
    """The workspace, if `actor` may do `need` there; raises as `workspace_with_grants` does."""
    return workspace_with_grants(actor, organization, workspace, need)[0]


def workspace_with_grants(
    actor: Actor, organization: str, workspace: str, need: Permission
) -> tuple[Workspace, frozenset[Permission]]:
    """The workspace, if `actor` may do `need` there, and all that they may.

    Raises NotFound when they may not see it at all (or it isn't there), Forbidden when they see it only.
    """
    found = (
        Workspace.objects.select_related("organization")
        .filter(organization__slug=organization, slug=workspace)
        .first()
    )
    grants = workspace_grants(actor, found) if found else NOBODY
    if found is None or Permission.READ_RUNS not in grants:
        raise NotFound
    _require(grants, need)
    return found, grants


def organization_for(actor: Actor, organization: str, need: Permission) -> Organization:
    """As `workspace_for`, for what belongs to the organization."""
    return organization_with_grants(actor, organization, need)[0]


def organization_with_grants(
    actor: Actor, organization: str, need: Permission
) -> tuple[Organization, frozenset[Permission]]:
    """As `workspace_with_grants`, for what belongs to the organization."""
    found = Organization.objects.filter(slug=organization).first()
    grants = organization_grants(actor, found) if found else NOBODY
    if found is None or Permission.READ_MACHINES not in grants:
        raise NotFound
    _require(grants, need)
    return found, grants


def workspaces_of(actor: Actor) -> list[Workspace]:
    """Those whose runs `actor` may read, by name."""
    found = _workspaces_of_user(actor.user)
    token = actor.token
    if token is None:
        return found
    return [each for each in found if Permission.READ_RUNS in _token_workspace_grants(token, each)]


def _workspaces_of_user(user: User) -> list[Workspace]:
    if not user.is_active:
        return []
    everywhere = OrganizationMembership.objects.filter(
        user=user, role__in=(OrganizationRole.OPERATOR, OrganizationRole.OWNER)
    ).values("organization")
    mine = Membership.objects.filter(user=user).values("workspace")
    found = Workspace.objects.select_related("organization")
    return list(
        (found.filter(id__in=mine) | found.filter(organization__in=everywhere)).order_by(
            "organization__slug", "slug"
        )
    )


def _require(grants: frozenset[Permission], need: Permission) -> None:
    if need not in grants:
        raise Forbidden(f"Your role does not allow you to {need.label}. An admin or owner can change it.")


def _token_workspace_grants(token: ApiToken, workspace: Workspace) -> frozenset[Permission]:
    """The most that the token may do there, whatever its maker may."""
    if token.workspace_id == workspace.id:
        return WORKSPACE_GRANTS[token.role]
    if token.workspace_id is None and token.organization_id == workspace.organization_id:
        return ORGANIZATION_GRANTS[token.role]
    return NOBODY


def _user_workspace_grants(user: User, workspace: Workspace) -> frozenset[Permission]:
    if not user.is_active:
        return NOBODY
    role = Membership.objects.filter(user=user, workspace=workspace).values_list("role", flat=True).first()
    return WORKSPACE_GRANTS[WorkspaceRole(role)] if role else NOBODY


def _user_organization_grants(user: User, organization_id: int) -> frozenset[Permission]:
    if not user.is_active:
        return NOBODY
    role = (
        OrganizationMembership.objects.filter(user=user, organization_id=organization_id)
        .values_list("role", flat=True)
        .first()
    )
    return ORGANIZATION_GRANTS[OrganizationRole(role)] if role else NOBODY
