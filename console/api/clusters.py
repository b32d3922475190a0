"""Clusters, join tokens, and the organization's audit log."""

from typing import Any

from django.db.models import Count, Q, QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from common.errors import NotFound
from console.api import schema
from console.api.answers import AuditAnswer, ClusterAnswer, JoinTokenAnswer, NewJoinToken
from console.api.base import ClusterView, OrganizationView
from console.api.bodies import body_of
from console.api.pages import PAGE_PARAMETERS, list_answer, page_of
from console.api.parameters import check_known
from console.api.requests import ClusterChange, JoinTokenOrder
from console.joining import join_command
from machines.mesh import mesh_range_set
from machines.models import Cluster, JoinToken
from machines.pools import pool_find
from machines.services import join_token_issue, join_token_revoke
from tenancy.models import AuditEvent
from tenancy.roles import Permission

PAGES = [schema.LIMIT, schema.CURSOR]


class Clusters(OrganizationView):
    @schema.operation("clusters_list", {200: schema.list_of(ClusterAnswer)})
    def get(self, request: Request, **_: str) -> Response:
        """The organization's clusters by name, all on one page."""
        organization = self.organization(request, Permission.READ_MACHINES)
        check_known(request)
        clusters = _counted(Cluster.objects.filter(organization=organization)).order_by("slug")
        return list_answer(_cluster_present(cluster) for cluster in clusters)


def _counted(clusters: QuerySet[Cluster]) -> QuerySet[Cluster, Any]:
    return clusters.annotate(count=Count("machines", filter=Q(machines__removed_at=None)))


def _cluster_present(cluster: Any) -> dict[str, Any]:
    """`cluster` as `_counted` loads it."""
    return {
        "metadata": {"name": cluster.slug},
        "spec": {"mesh_range": cluster.mesh_range},
        "status": {
            "title": cluster.name,
            "machines": cluster.count,
            "pass_number": cluster.pass_no,
            "passed_at": cluster.passed_at,
        },
    }


class OneCluster(ClusterView):
    @schema.operation("cluster_show", {200: ClusterAnswer})
    def get(self, request: Request, **_: str) -> Response:
        """A cluster: its machines are placed by one pass at a time."""
        cluster = self.cluster(request, Permission.READ_MACHINES)
        check_known(request)
        return self.shown(cluster)

    def shown(self, cluster: Cluster) -> Response:
        return Response(_cluster_present(_counted(Cluster.objects.filter(id=cluster.id)).get()))

    @schema.operation(
        "cluster_change", {200: ClusterAnswer}, body=ClusterChange, refusals=(*schema.SEND, 409)
    )
    def patch(self, request: Request, **_: str) -> Response:
        """Sets the range of the mesh network; every machine gets another subnet of it.

        Refused while a worker is on the mesh, which would lose its address.
        """
        cluster = self.cluster(request, Permission.OWN)
        check_known(request)
        mesh_range = body_of(request, ClusterChange).spec.mesh_range
        if mesh_range is not None:
            mesh_range_set(cluster=cluster, mesh_range=mesh_range, actor=self.actor(request))
        return self.shown(cluster)


def join_token_present(token: JoinToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "prefix": token.prefix,
        "pool": token.pool.slug,
        "created_by": token.created_by,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "used_at": token.used_at,
        "machine": token.machine.name if token.machine else None,
    }


def _join_tokens(cluster: Cluster) -> Any:
    tokens = JoinToken.objects.filter(pool__cluster=cluster)
    return tokens.select_related("pool__cluster__organization", "machine")


class JoinTokens(ClusterView):
    @schema.operation(
        "join_tokens_list", {200: schema.list_of(JoinTokenAnswer)}, parameters=PAGES, refusals=schema.WRITE
    )
    def get(self, request: Request, **_: str) -> Response:
        """Join tokens of the cluster, newest first; used and expired ones too."""
        cluster = self.cluster(request, Permission.OPERATE_MACHINES)
        check_known(request, PAGE_PARAMETERS)
        return page_of(_join_tokens(cluster), request).answer(join_token_present)

    @schema.operation("join_token_create", {201: NewJoinToken}, body=JoinTokenOrder, refusals=schema.SEND)
    def post(self, request: Request, **_: str) -> Response:
        """Makes a token with which one machine may join within an hour; its secret is in this answer only."""
        cluster = self.cluster(request, Permission.OPERATE_MACHINES)
        check_known(request)
        pool = pool_find(cluster, body_of(request, JoinTokenOrder).pool, path="pool")
        token, secret = join_token_issue(pool=pool, actor=self.actor(request))
        answer = {**join_token_present(token), "secret": secret.value, "command": join_command(secret)}
        return Response(answer, status=201)


class OneJoinToken(ClusterView):
    def token(self, request: Request) -> JoinToken:
        cluster = self.cluster(request, Permission.OPERATE_MACHINES)
        check_known(request)
        found: JoinToken | None = _join_tokens(cluster).filter(id=self.kwargs["token"]).first()
        if found is None:
            raise NotFound(f"There is no join token {self.kwargs['token']} here.")
        return found

    @schema.operation("join_token_show", {200: JoinTokenAnswer}, refusals=schema.WRITE)
    def get(self, request: Request, **_: Any) -> Response:
        """A join token, without its secret: also tells which machine has joined with it."""
        return Response(join_token_present(self.token(request)))

    @schema.operation("join_token_revoke", {200: JoinTokenAnswer}, refusals=schema.WRITE)
    def delete(self, request: Request, **_: Any) -> Response:
        """Nobody can join with it any more; it stays in the list. Idempotent."""
        join_token_revoke(token=self.token(request), actor=self.actor(request))
        return Response(join_token_present(self.token(request)))


class Audit(OrganizationView):
    @schema.operation(
        "audit_list", {200: schema.list_of(AuditAnswer)}, parameters=PAGES, refusals=schema.WRITE
    )
    def get(self, request: Request, **_: str) -> Response:
        """Every write in the organization, newest first: who, what, from where, before and after."""
        organization = self.organization(request, Permission.OWN)
        check_known(request, PAGE_PARAMETERS)
        events = AuditEvent.objects.filter(organization=organization).select_related("workspace")
        return page_of(events, request).answer(_audit_present)


def _audit_present(event: AuditEvent) -> dict[str, Any]:
    return {
        "at": event.at,
        "actor": event.actor,
        "address": event.address,
        "workspace": event.workspace.slug if event.workspace else None,
        "action": event.action,
        "target": event.target,
        "before": event.before,
        "after": event.after,
    }
