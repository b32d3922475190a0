"""Where a page stands: who asks, in which workspace or cluster, and what they may do there."""

from dataclasses import dataclass

from django.http import HttpRequest

from common.errors import NotFound
from machines.models import Cluster
from tenancy.access import Actor, organization_with_grants, workspace_with_grants, workspaces_of
from tenancy.authentication import actor_of
from tenancy.models import Organization, Workspace
from tenancy.roles import Permission

SESSION_KEY = "workspace"


@dataclass(frozen=True, slots=True)
class Scope:
    """A workspace's or a cluster's page."""

    actor: Actor
    organization: Organization
    workspace: Workspace | None
    """On a cluster's page: the workspace last looked at, for the way back."""
    workspaces: list[Workspace]
    """Those whose runs the person may read."""
    grants: frozenset[Permission]
    cluster: Cluster | None = None

    @property
    def here(self) -> Workspace:
        """The workspace of a workspace's page, where there always is one."""
        assert self.workspace is not None  # noqa: S101 - for mypy: workspace_scope sets it
        return self.workspace

    @property
    def cluster_here(self) -> Cluster:
        """The cluster of a cluster's page, where there always is one."""
        assert self.cluster is not None  # noqa: S101 - for mypy: cluster_scope sets it
        return self.cluster

    @property
    def may_write(self) -> bool:
        return Permission.WRITE_RUNS in self.grants

    @property
    def may_manage(self) -> bool:
        return Permission.MANAGE_WORKSPACE in self.grants

    @property
    def may_own(self) -> bool:
        return Permission.OWN in self.grants

    @property
    def may_operate(self) -> bool:
        return Permission.OPERATE_MACHINES in self.grants

    @property
    def cluster_slug(self) -> str:
        if self.cluster is not None:
            return self.cluster.slug
        return self.workspace.default_cluster if self.workspace else ""


def workspace_scope(
    request: HttpRequest, organization: str, workspace: str, need: Permission = Permission.READ_RUNS
) -> Scope:
    """Raises NotFound or Forbidden as `workspace_with_grants` does."""
    actor = actor_of(request)
    found, grants = workspace_with_grants(actor, organization, workspace, need)
    if request.session.get(SESSION_KEY) != found.id:
        request.session[SESSION_KEY] = found.id
    return Scope(
        actor=actor,
        organization=found.organization,
        workspace=found,
        workspaces=workspaces_of(actor),
        grants=grants,
    )


def cluster_scope(
    request: HttpRequest, organization: str, cluster: str, need: Permission = Permission.READ_MACHINES
) -> Scope:
    """As `workspace_scope`, for a cluster's machines."""
    actor = actor_of(request)
    found, grants = organization_with_grants(actor, organization, need)
    row = Cluster.objects.select_related("organization").filter(organization=found, slug=cluster).first()
    if row is None:
        raise NotFound
    workspaces = workspaces_of(actor)
    return Scope(
        actor=actor,
        organization=found,
        workspace=workspace_last(request, [each for each in workspaces if each.organization_id == found.id]),
        workspaces=workspaces,
        grants=grants,
        cluster=row,
    )


def workspace_last(request: HttpRequest, workspaces: list[Workspace]) -> Workspace | None:
    """The one of `workspaces` that was looked at last, else the first; None without any."""
    last = request.session.get(SESSION_KEY)
    return next((each for each in workspaces if each.id == last), workspaces[0] if workspaces else None)
