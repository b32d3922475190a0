"""Pools of a cluster: what is in them, and, for owners, which workspaces may use them."""

from collections.abc import Callable
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from console.api import schema
from console.api.answers import ForesightAnswer, PoolAnswer
from console.api.base import ClusterView
from console.api.bodies import body_of
from console.api.machine_changes import foresight_of
from console.api.pages import list_answer
from console.api.parameters import check_known, flag
from console.api.requests import PoolChange, PoolOrder, PoolShare
from machines import pools
from machines.models import Cluster, Pool
from machines.pools import Share
from placement.phrases import and_list
from runs.pool_preview import pool_preview
from runs.pool_use import PoolSize, pool_sizes, shares_words
from tenancy.access import Actor, organization_grants, workspaces_of
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
    def pool(self, request: Request, need: Permission, parameters: tuple[str, ...] = ()) -> Pool:
        cluster = self.cluster(request, need)
        check_known(request, parameters)
        return pools.pool_get(cluster, self.kwargs["pool"])

    @schema.operation("pool_show", {200: PoolAnswer})
    def get(self, request: Request, **_: str) -> Response:
        """A pool: how many machines and GPUs it has, and who may use them."""
        return Response(self.one(request, self.pool(request, Permission.READ_MACHINES)))

    @schema.operation(
        "pool_change",
        {200: {"anyOf": [schema.reference(PoolAnswer), schema.reference(ForesightAnswer)]}},
        body=PoolChange,
        parameters=[schema.DRY_RUN],
        refusals=(*schema.SEND, 409),
    )
    def patch(self, request: Request, **_: str) -> Response:
        """Renames a pool, or says which workspaces may use it.

        What runs on its machines goes on; the next pass places by what is said here. A machine changes its pool with
        its own `spec.pool`. With `dry_run` nothing is changed, and the answer tells what placement would make of it.
        """
        pool = self.pool(request, Permission.OWN, ("dry_run",))
        dry_run, change = flag(request, "dry_run"), body_of(request, PoolChange)
        workspaces = None if change.spec.workspaces is None else _shares(change.spec.workspaces)
        actor = self.actor(request)

        def carry_out() -> Pool:
            return pools.pool_change(
                pool=pool,
                actor=actor,
                name=change.metadata.name,
                title=change.spec.title,
                workspaces=workspaces,
            )

        return Response(self._foreseen(pool, carry_out, actor) if dry_run else self.one(request, carry_out()))

    def _foreseen(self, pool: Pool, carry_out: Callable[[], Pool], actor: Actor) -> dict[str, Any]:
        changed: list[Pool] = []
        visible = {workspace.id for workspace in workspaces_of(actor)}
        preview = pool_preview(pool, lambda: changed.append(carry_out()), visible=visible)
        return foresight_of(preview, _facts(pool, changed[0]))

    @schema.operation("pool_remove", {204: None}, refusals=(*schema.WRITE, 409))
    def delete(self, request: Request, **_: str) -> Response:
        """Removes a pool. Refused while machines are in it, drives lie on it, or runs that wait or run name it."""
        pools.pool_remove(pool=self.pool(request, Permission.OWN), actor=self.actor(request))
        return Response(status=204)


def _facts(was: Pool, now: Pool) -> str:
    """What would be different itself."""
    parts = [f"named {now.slug}"] if now.slug != was.slug else []
    if now.name != was.name:
        parts.append(f"titled {now.name}")
    before, after = (shares_words(pools.shares_of(each)) for each in (was, now))
    if after != before:
        parts.append(f"open to {after} instead of {before}")
    return f"{was.slug} would be {and_list(parts)}." if parts else f"{was.slug} would stay as it is."
