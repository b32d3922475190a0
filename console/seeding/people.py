"""The organization, its workspaces, their people, and the pools that they may use."""

from collections.abc import Sequence
from dataclasses import dataclass

from common.errors import Conflict
from console.seeding.zones import ZONES
from machines.models import Cluster, Machine, Pool, WorkspacePool
from tenancy.models import Membership, Organization, OrganizationMembership, User, Workspace
from tenancy.roles import OrganizationRole, WorkspaceRole

WORKSPACES = {"vision": "Vision", "research": "Research", "speech": "Speech"}
PEOPLE = {"ops": OrganizationRole.OPERATOR, "mira": OrganizationRole.MEMBER, "kei": OrganizationRole.MEMBER}
OWNER = "demo"
"""Whom `bootstrap_demo` gives a password."""


@dataclass(frozen=True, slots=True)
class House:
    cluster: Cluster
    workspaces: Sequence[Workspace]
    pools: dict[str, Pool]
    people: Sequence[User]


def house_make(cluster: str) -> House:
    """Keeps what is there already. Raises Conflict when the cluster has machines."""
    organization, _ = Organization.objects.get_or_create(slug="acme", defaults={"name": "Acme"})
    found, _ = Cluster.objects.get_or_create(
        organization=organization, slug=cluster, defaults={"name": cluster.capitalize()}
    )
    if Machine.objects.filter(cluster=found).exists():
        raise Conflict(
            "not_empty", f"The cluster {cluster} has machines already. Name another one: --cluster NAME."
        )
    workspaces = [_workspace(organization, slug, name, cluster) for slug, name in WORKSPACES.items()]
    pools = {zone.pool: _pool(found, zone.pool, workspaces) for zone in ZONES}
    people = [_person(organization, name, role, workspaces) for name, role in _everybody().items()]
    return House(found, workspaces, pools, people)


def _everybody() -> dict[str, OrganizationRole]:
    return {OWNER: OrganizationRole.OWNER, **PEOPLE}


def _workspace(organization: Organization, slug: str, name: str, cluster: str) -> Workspace:
    defaults = {"name": name, "default_cluster": cluster}
    return Workspace.objects.get_or_create(organization=organization, slug=slug, defaults=defaults)[0]


def _pool(cluster: Cluster, slug: str, workspaces: Sequence[Workspace]) -> Pool:
    pool, _ = Pool.objects.get_or_create(cluster=cluster, slug=slug, defaults={"name": slug.upper()})
    for workspace in workspaces:
        WorkspacePool.objects.get_or_create(workspace=workspace, pool=pool)
    return pool


def _person(
    organization: Organization, name: str, role: OrganizationRole, workspaces: Sequence[Workspace]
) -> User:
    user, made = User.objects.get_or_create(username=name, defaults={"email": f"{name}@example.com"})
    if made:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    OrganizationMembership.objects.get_or_create(
        organization=organization, user=user, defaults={"role": role}
    )
    for workspace in workspaces:
        Membership.objects.get_or_create(
            workspace=workspace, user=user, defaults={"role": WorkspaceRole.ADMIN}
        )
    return user
