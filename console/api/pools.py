"""Pools of a cluster: what is in them, and, for owners, which workspaces may use them."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from console.api import schema
from console.api.answers import PoolAnswer
from console.api.base import ClusterView
from console.api.bodies import body_of
from console.api.pages import list_answer
from console.api.parameters import check_known
from console.api.requests import PoolChange, PoolOrder, PoolShare
from machines import pools
from machines.models import Cluster, Pool
from machines.pools import Share
from runs.pool_use import PoolSize, pool_sizes
from tenancy.access import organization_grants
from tenancy.roles import Permission


class PoolView(ClusterView):
    def present(self, request: Request, found: list[Pool], cluster: Cluster) -> list[dict[str, Any]]:
        """`found` as `pools_of` loads them."""
        sizes = pool_sizes(cluster)
        owner = Permission.OWN in organization_grants(self.actor(request), cluster.organization)
        return [_present(pool, sizes.get(pool.slug, PoolSize()), owner=owner) for pool in found]

    def one(self, request: Request, pool: Pool) -> dict[str, Any]:
        return self.present(request, [pool], pool.cluster)[0]


def _present(pool: Pool, size: PoolSize, *, owner: bool) -> dict[str, Any]:
    data = pools.pool_data(pool)
    return {
        "metadata": {"name": pool.slug},
        "spec": {"title": pool.name, "workspaces": data["workspaces"] if owner else None},
        "status": {
            "machines": size.machines,
            "gpus_total": size.gpus_total,
            "gpus_free": size.gpus_free,
        },
    }


def _shares(workspaces: dict[str, PoolShare]) -> dict[str, Share]:
    return {slug: Share(each.gpu_cap, each.guaranteed_gpus) for slug, each in workspaces.items()}


class Pools(PoolView):
    @schema.operation("pools_list", {200: schema.list_of(PoolAnswer)})
    def get(self, request: Request, **_: str) -> Response:
        """The cluster's pools by name, all on one page."""
        cluster = self.cluster(request, Permission.READ_MACHINES)
        check_known(request)
        return list_answer(self.present(request, list(pools.pools_of(cluster)), cluster))

    @schema.operation("pool_create", {201: PoolAnswer}, body=PoolOrder, refusals=(*schema.SEND, 409))
    def post(self, request: Request, **_: str) -> Response:
        """Makes a pool, without machines: they join it, or are moved into it."""
        cluster = self.cluster(request, Permission.OWN)
        check_known(request)
        body = body_of(request, PoolOrder)
        order = pools.PoolOrder(body.metadata.name, body.spec.title or "", _shares(body.spec.workspaces))
        pool = pools.pool_create(cluster=cluster, order=order, actor=self.actor(request))
        return Response(self.one(request, pool), status=201)


class OnePool(PoolView):
    def pool(self, request: Request, need: Permission) -> Pool:
        cluster = self.cluster(request, need)
        check_known(request)
        return pools.pool_get(cluster, self.kwargs["pool"])

    @schema.operation("pool_show", {200: PoolAnswer})
    def get(self, request: Request, **_: str) -> Response:
        """A pool: how many machines and GPUs it has, and who may use them."""
        return Response(self.one(request, self.pool(request, Permission.READ_MACHINES)))

    @schema.operation("pool_change", {200: PoolAnswer}, body=PoolChange, refusals=(*schema.SEND, 409))
    def patch(self, request: Request, **_: str) -> Response:
        """Renames a pool, or says which workspaces may use it.

        What runs on its machines goes on; the next pass places by what is said here. A machine changes its pool with
        its own `spec.pool`.
        """
        pool, change = self.pool(request, Permission.OWN), body_of(request, PoolChange)
        workspaces = None if change.spec.workspaces is None else _shares(change.spec.workspaces)
        changed = pools.pool_change(
            pool=pool,
            actor=self.actor(request),
            name=change.metadata.name,
            title=change.spec.title,
            workspaces=workspaces,
        )
        return Response(self.one(request, changed))

    @schema.operation("pool_remove", {204: None}, refusals=(*schema.WRITE, 409))
    def delete(self, request: Request, **_: str) -> Response:
        """Removes a pool. Refused while machines are in it, drives lie on it, or runs that wait or run name it."""
        pools.pool_remove(pool=self.pool(request, Permission.OWN), actor=self.actor(request))
        return Response(status=204)
