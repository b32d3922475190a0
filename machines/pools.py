"""Pools: which machines belong together, and which workspaces may use them, up to where. Owners make them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet

from common.errors import Conflict, FieldError, Invalid, NotFound
from machines.models import Cluster, DataVolume, JoinToken, Machine, Pool, WorkspacePool
from machines.services import machine_changed, machines_lock, pool_lock
from machines.signals import cluster_changed
from tenancy.access import Actor
from tenancy.models import Workspace
from tenancy.services import audit_record
from tenancy.stores import refuse
from wire.names import BadName, check_dns_label, check_line, shown

LONGEST_NAME = 40
LONGEST_TITLE = 100
MOST_GPUS = 10_000_000
"""More than any cluster has; no cap and no guarantee is larger."""
NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Share:
    """What a workspace may use of a pool. GPUs."""

    gpu_cap: int | None = None
    """None: no cap."""
    guaranteed_gpus: int = 0


@dataclass(frozen=True, slots=True)
class PoolOrder:
    """A pool as somebody wants it."""

    name: str
    """What runs call it."""
    title: str = ""
    """What people read; empty: the name."""
    workspaces: Mapping[str, Share] = field(default_factory=dict)
    """Those that may use it, by slug."""


def pools_of(cluster: Cluster) -> QuerySet[Pool]:
    """By name, with the workspaces that may use them."""
    found = Pool.objects.filter(cluster=cluster).select_related("cluster__organization")
    return found.prefetch_related("workspace_access__workspace").order_by("slug")


def pool_get(cluster: Cluster, name: str) -> Pool:
    """Raises NotFound."""
    pool = pools_of(cluster).filter(slug=name).first()
    if pool is None:
        raise NotFound(f"There is no pool {shown(name)} in {cluster.slug}.")
    return pool


def pool_find(cluster: Cluster, name: str, *, path: str) -> Pool:
    """As `pool_get`, for a pool that a request names: raises Invalid, at `path`."""
    pool = pools_of(cluster).filter(slug=name).first()
    if pool is None:
        there = ", ".join(cluster.pools.order_by("slug").values_list("slug", flat=True))
        message = f"There is no pool {shown(name)} in {cluster.slug}; there is: {there or 'none yet'}."
        raise Invalid("unknown_pool", message, errors=(FieldError(path, "unknown_pool", message),))
    return pool


def pool_data(pool: Pool) -> dict[str, Any]:
    """All of it, for owners: it names workspaces."""
    shares = {slug: asdict(share) for slug, share in shares_of(pool).items()}
    return {"name": pool.slug, "title": pool.name, "workspaces": shares}


def shares_of(pool: Pool) -> dict[str, Share]:
    """The workspaces that may use it, by slug, in their order. `pool` as `pools_of` loads it."""
    access = sorted(pool.workspace_access.all(), key=lambda each: each.workspace.slug)
    return {each.workspace.slug: Share(each.gpu_cap, each.guaranteed_gpus) for each in access}


@transaction.atomic
def pool_create(*, cluster: Cluster, order: PoolOrder, actor: Actor) -> Pool:
    """Raises Invalid (all that is wrong at once) and Conflict for a name that is taken."""
    access = _Access(cluster, order.workspaces)
    refuse(*_flaws(order), *access.flaws)
    pool = Pool(cluster=cluster, slug=order.name, name=order.title or order.name)
    _saved(pool)
    access.give(pool)
    made = pool_get(cluster, pool.slug)
    _changed(made, actor, "create", None, pool_data(made))
    return made


@transaction.atomic
def pool_change(
    *,
    pool: Pool,
    actor: Actor,
    name: str | None = None,
    title: str | None = None,
    workspaces: Mapping[str, Share] | None = None,
) -> Pool:
    """Changes what is given; `workspaces` as a whole. What runs on its machines goes on, whoever may use them then.

    The pool as it is then, as `pools_of` loads it.

    Raises Invalid, Conflict for a name that is taken or while runs name the pool, NotFound when it has gone.
    """
    now = _locked(pool)
    before = pool_data(now)
    order = PoolOrder(
        name=now.slug if name is None else name,
        title=now.name if title is None else title,
        workspaces=workspaces or {},
    )
    access = _Access(now.cluster, order.workspaces)
    refuse(*_flaws(order), *access.flaws)
    if order.name != now.slug:
        _require_unnamed(now, "renamed")
    if workspaces is not None:
        WorkspacePool.objects.filter(pool=now).delete()
        access.give(now)
    now.slug, now.name = order.name, order.title or order.name
    _saved(now)
    changed = pools_of(now.cluster).get(id=now.id)
    after = pool_data(changed)
    if after != before:
        there = machines_lock(Machine.objects.filter(pool=now).values_list("id", flat=True))
        Machine.objects.filter(id__in=there).update(version=F("version") + 1)
        _changed(pool, actor, "change", before, after)
    return changed


@transaction.atomic
def pool_remove(*, pool: Pool, actor: Actor) -> None:
    """Raises Conflict, saying which, while machines, drives or runs need it. Its unused join tokens go with it."""
    now = _locked(pool)
    # Whoever joins with one of them now is waited for, and then counted below.
    JoinToken.objects.filter(pool=now).delete()
    machines = Machine.objects.filter(pool=now).order_by("name").values_list("name", flat=True)
    _require_none(now, "removed", "machines are in it", machines, "Move them to another pool first.")
    drives = DataVolume.objects.filter(pool=now).order_by("name").values_list("name", flat=True)
    _require_none(now, "removed", "drives lie on its machines", drives, "Remove them first.")
    _require_unnamed(now, "removed")
    before = pool_data(now)
    now.delete()
    _changed(pool, actor, "remove", before, None)


@transaction.atomic
def machines_move(*, machines: Sequence[Machine], pool: str, actor: Actor) -> None:
    """Puts machines (at least one, all of one cluster) into another pool of it; what runs there goes on.

    Raises Invalid for an unknown pool. Machines that were removed meanwhile are left out.
    """
    found = _locked(pool_find(machines[0].cluster, pool, path="spec.pool"))
    there = machines_lock(machine.id for machine in machines)
    pools = dict(Pool.objects.filter(machines__in=there).values_list("id", "slug").distinct())
    for machine in machines:
        was = there[machine.id].pool_id if machine.id in there else found.id
        if was != found.id:
            Machine.objects.filter(id=machine.id).update(pool=found)
            machine_changed(machine, actor, "move", {"pool": pools.get(was or 0)}, {"pool": found.slug})


def _locked(pool: Pool) -> Pool:
    """As it is now, and stays until the transaction ends. Raises NotFound when it has gone."""
    pool_lock(pool.id)
    return pools_of(pool.cluster).get(id=pool.id)


def _saved(pool: Pool) -> None:
    try:
        with transaction.atomic():
            pool.save()
    except IntegrityError as error:
        message = f"{pool.cluster.slug} has a pool `{pool.slug}` already."
        flaw = FieldError("metadata.name", "name_taken", message)
        raise Conflict("name_taken", message, errors=(flaw,)) from error


def _changed(pool: Pool, actor: Actor, action: str, before: Any, after: Any) -> None:
    """Noted in the audit log; waiting runs are tried again. What they may use is read anew with every pass."""
    audit_record(
        actor=actor,
        organization=pool.cluster.organization,
        action=f"pool.{action}",
        target=pool.slug,
        before=before,
        after=after,
    )
    cluster_changed.send(sender=Pool, cluster_id=pool.cluster_id)


# --- What is wrong with an order, and what needs a pool -----------------------------------------------------


class _Access:
    """The workspaces that may use a pool."""

    def __init__(self, cluster: Cluster, shares: Mapping[str, Share]) -> None:
        there = Workspace.objects.filter(organization=cluster.organization_id, slug__in=shares)
        self._shares = shares
        self._there = {workspace.slug: workspace for workspace in there}
        self.flaws = tuple(self._flaws())

    def _flaws(self) -> Iterator[FieldError]:
        for slug, share in self._shares.items():
            path = f"spec.workspaces.{slug}"
            if slug not in self._there:
                yield FieldError(path, "unknown_workspace", f"There is no workspace {shown(slug)} here.")
            if share.gpu_cap is not None and share.guaranteed_gpus > share.gpu_cap:
                message = (
                    f"{slug} can't be guaranteed {share.guaranteed_gpus:,} GPUs when it may use "
                    f"{share.gpu_cap:,} at most."
                )
                yield FieldError(f"{path}.guaranteed_gpus", "over_cap", message)

    def give(self, pool: Pool) -> None:
        WorkspacePool.objects.bulk_create(
            WorkspacePool(
                pool=pool,
                workspace=self._there[slug],
                gpu_cap=share.gpu_cap,
                guaranteed_gpus=share.guaranteed_gpus,
            )
            for slug, share in self._shares.items()
        )


def _flaws(order: PoolOrder) -> Iterator[FieldError]:
    try:
        check_dns_label(order.name, LONGEST_NAME)
    except BadName as error:
        yield FieldError("metadata.name", "bad_name", str(error))
    try:
        check_line(order.title or order.name)
    except BadName as error:
        yield FieldError("spec.title", "bad_text", str(error))
    if len(order.title) > LONGEST_TITLE:
        message = f"The title has {len(order.title)} characters. Use at most {LONGEST_TITLE}."
        yield FieldError("spec.title", "bad_text", message)


def _require_unnamed(pool: Pool, what: str) -> None:
    """Runs that wait or run and name it would never find it again."""
    template = {"requested_resources": {"node_selection": {"mode": "Pools", "pools": [pool.slug]}}}
    naming = Q(document__contains={"spec": {"task_template": template}}) | Q(
        document__contains={"spec": {"worker_groups": [{"task_template": template}]}}
    )
    # Runs belong to the app above; their relation to clusters is all that is read of them.
    runs = pool.cluster.runs.filter(naming, parent=None, ended_at=None).order_by("name")
    names = runs.values_list("name", flat=True)
    _require_none(pool, what, "runs that wait or run name it", names, "Stop them, or edit their documents.")


def _require_none(pool: Pool, what: str, why: str, names: Iterable[str], mend: str) -> None:
    found = list(islice(names, NAMES_SHOWN + 1))
    if found:
        more = " and others" if len(found) > NAMES_SHOWN else ""
        told = ", ".join(found[:NAMES_SHOWN]) + more
        raise Conflict("in_use", f"{pool.slug} can't be {what} while {why}: {told}. {mend}")
