"""Fabrics of a cluster: what was found, and what operators make of it."""

from typing import Any

from django.db.models import Count, QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from common.errors import NotFound
from console.api import schema
from console.api.answers import FabricAnswer, ForesightAnswer
from console.api.base import ClusterView
from console.api.bodies import body_of
from console.api.machine_changes import foresight_of
from console.api.pages import list_answer
from console.api.parameters import check_known, flag
from console.api.requests import FabricChange
from machines.fabric_changes import fabric_change
from machines.models import Cluster, Fabric
from placement.phrases import and_list
from runs.machine_preview import fabric_preview
from tenancy.access import workspaces_of
from tenancy.roles import Permission


def _counted(cluster: Cluster) -> QuerySet[Fabric, Any]:
    return Fabric.objects.filter(cluster=cluster).annotate(
        port_count=Count("ports"), machine_count=Count("ports__machine", distinct=True)
    )


def _present(fabric: Any) -> dict[str, Any]:
    """`fabric` as `_counted` loads it."""
    return {
        "metadata": {"name": fabric.name},
        "spec": {"storage": fabric.storage},
        "status": {
            "key": fabric.key,
            "guessed": fabric.guessed,
            "machines": fabric.machine_count,
            "ports": fabric.port_count,
        },
    }


class Fabrics(ClusterView):
    @schema.operation("fabrics_list", {200: schema.list_of(FabricAnswer)})
    def get(self, request: Request, **_: str) -> Response:
        """The cluster's fabrics by name, all on one page."""
        cluster = self.cluster(request, Permission.READ_MACHINES)
        check_known(request)
        return list_answer(_present(fabric) for fabric in _counted(cluster).order_by("name", "id"))


class OneFabric(ClusterView):
    def fabric(self, request: Request, need: Permission) -> Any:
        cluster = self.cluster(request, need)
        found = (
            _counted(cluster)
            .select_related("cluster__organization")
            .filter(name=self.kwargs["fabric"])
            .first()
        )
        if found is None:
            raise NotFound(f"There is no fabric `{self.kwargs['fabric'][:63]}` in {cluster.slug}.")
        return found

    @schema.operation("fabric_show", {200: FabricAnswer})
    def get(self, request: Request, **_: str) -> Response:
        """A fabric: ports that share a subnet manager."""
        check_known(request)
        return Response(_present(self.fabric(request, Permission.READ_MACHINES)))

    @schema.operation(
        "fabric_change",
        {200: {"anyOf": [schema.reference(FabricAnswer), schema.reference(ForesightAnswer)]}},
        body=FabricChange,
        parameters=[schema.DRY_RUN],
        refusals=(*schema.SEND, 409),
    )
    def patch(self, request: Request, **_: str) -> Response:
        """Renames a fabric, or says whether it is a storage network.

        With `dry_run` nothing is changed, and the answer tells what placement would make of it.
        """
        fabric = self.fabric(request, Permission.OPERATE_MACHINES)
        check_known(request, ("dry_run",))
        dry_run, change = flag(request, "dry_run"), body_of(request, FabricChange)
        actor = self.actor(request)

        def carry_out() -> None:
            fabric_change(fabric=fabric, name=change.metadata.name, storage=change.spec.storage, actor=actor)

        if not dry_run:
            carry_out()
            return Response(_present(_counted(fabric.cluster).get(id=fabric.id)))
        visible = {workspace.id for workspace in workspaces_of(actor)}
        preview = fabric_preview(fabric, carry_out, visible=visible)
        return Response(foresight_of(preview, _facts(fabric, change)))


def _facts(fabric: Fabric, change: FabricChange) -> str:
    parts = []
    if change.metadata.name not in {None, fabric.name}:
        parts.append(f"named {change.metadata.name}")
    if change.spec.storage not in {None, fabric.storage}:
        parts.append("kept for storage" if change.spec.storage else "used by runs")
    return f"{fabric.name} would be {and_list(parts)}." if parts else f"{fabric.name} would stay as it is."
