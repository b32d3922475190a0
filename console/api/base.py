"""The ground of every view: who asks, what they may do, and which part of the console the address means."""

from rest_framework.request import Request
from rest_framework.views import APIView

from common.errors import NotFound
from machines.models import Cluster
from runs.models import Run
from runs.presentation import run_get
from tenancy.access import Actor, organization_for, workspace_for
from tenancy.authentication import actor_of
from tenancy.models import Organization, Workspace
from tenancy.roles import Permission

NUL = "\x00"
"""PostgreSQL keeps none in a text, so nothing here is called so."""


class OrganizationView(APIView):
    """Below `/api/v1/o/<org>/`."""

    http_method_names = ("get", "head", "post", "put", "patch", "delete")
    """/api/schema describes everything: OPTIONS is no method here."""

    def actor(self, request: Request) -> Actor:
        return actor_of(request)

    def organization(self, request: Request, need: Permission) -> Organization:
        self._check_names()
        return organization_for(actor_of(request), self.kwargs["organization"], need)

    def _check_names(self) -> None:
        if any(NUL in value for value in self.kwargs.values() if isinstance(value, str)):
            raise NotFound


class ClusterView(OrganizationView):
    """Below `/api/v1/o/<org>/clusters/<cluster>/`."""

    def cluster(self, request: Request, need: Permission) -> Cluster:
        organization = self.organization(request, need)
        found = Cluster.objects.filter(organization=organization, slug=self.kwargs["cluster"]).first()
        if found is None:
            raise NotFound(f"There is no cluster `{self.kwargs['cluster'][:63]}` in {organization.slug}.")
        return found


class WorkspaceView(OrganizationView):
    """Below `/api/v1/o/<org>/w/<workspace>/`."""

    def workspace(self, request: Request, need: Permission) -> Workspace:
        self._check_names()
        return workspace_for(actor_of(request), self.kwargs["organization"], self.kwargs["workspace"], need)

    def run(self, request: Request, need: Permission) -> Run:
        """The run that the address names, with all that is shown of it."""
        workspace = self.workspace(request, need)
        return run_get(workspace=workspace, name=self.kwargs["run"])
