"""Drives: directories of machines that owners let workspaces use. Where they lie on a host only owners say and see."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from common.errors import FieldError, NotFound
from machines.models import Cluster, DataVolume, DataVolumeAccess, Machine, Pool
from machines.signals import cluster_changed
from machines.states import DriveKind, Reach
from tenancy.access import Actor
from tenancy.models import Workspace
from tenancy.services import audit_record
from tenancy.stores import created, name_flaws, refuse
from wire.names import shown
from wire.spec.base import SYSTEM_PATHS, check_absolute_path

READ, WRITE = "read", "write"


@dataclass(frozen=True, slots=True)
class DriveOrder:
    """A drive to be made."""

    name: str
    kind: str
    path: str
    pool: str | None = None
    machine: str | None = None
    reach: str = Reach.LOCAL
    access: Mapping[str, bool] = field(default_factory=dict)
    """Workspaces that may use it, by slug, and whether they may only read it."""


def drives_of(cluster: Cluster) -> QuerySet[DataVolume]:
    """With all that owners are shown of them."""
    found = DataVolume.objects.filter(cluster=cluster).select_related(
        "cluster__organization", "pool", "machine"
    )
    return found.prefetch_related("access__workspace")


def drive_find(cluster: Cluster, name: str) -> DataVolume:
    """Raises NotFound."""
    drive = drives_of(cluster).filter(name=name).first()
    if drive is None:
        raise NotFound(f"{cluster.slug} has no drive {shown(name)}.")
    return drive


def drive_access_of(workspace: Workspace) -> QuerySet[DataVolumeAccess]:
    """The drives that the workspace may use."""
    found = DataVolumeAccess.objects.filter(workspace=workspace)
    return found.select_related("volume__cluster", "volume__pool", "volume__machine")


def drive_is_on(drive: DataVolume, machine: Machine) -> bool:
    """Whether a worker on `machine` can mount it, there or over the network."""
    if drive.machine_id is not None and drive.reach == Reach.LOCAL:
        return drive.machine_id == machine.id
    return drive.cluster_id == machine.cluster_id and drive.pool_id in {None, machine.pool_id}


@transaction.atomic
def drive_create(*, cluster: Cluster, order: DriveOrder, actor: Actor) -> DataVolume:
    """Raises Invalid (all that is wrong at once) and Conflict for a name that is taken."""
    place = _Place(cluster, order)
    access = _Workspaces(cluster, order.access)
    refuse(*name_flaws(order.name), *place.flaws, *_path_flaws(order.path), *access.flaws)
    drive = DataVolume(
        cluster=cluster,
        name=order.name,
        kind=order.kind,
        path=order.path,
        pool=place.pool,
        machine=place.machine,
        reach=order.reach,
        changed_at=timezone.now(),
        changed_by=actor.name,
    )
    created(drive, "drive", f"{cluster.slug} has a drive `{order.name}` already.")
    access.give(drive)
    _changed(drive, actor, "create", None, drive_data(drive))
    return drive


@transaction.atomic
def drive_change(
    *,
    drive: DataVolume,
    actor: Actor,
    path: str | None = None,
    reach: str | None = None,
    access: Mapping[str, bool] | None = None,
) -> None:
    """Changes what is given; `access` as a whole. Running workers keep what they have. Raises Invalid."""
    row = DataVolume.objects.select_for_update(of=("self",)).select_related("cluster").get(id=drive.id)
    before = drive_data(row)
    row.path, row.reach = path or row.path, reach or row.reach
    workspaces = _Workspaces(row.cluster, access or {})
    refuse(*_path_flaws(row.path), *_reach_flaws(row.kind, row.reach), *workspaces.flaws)
    row.changed_at, row.changed_by = timezone.now(), actor.name
    row.save()
    if access is not None:
        DataVolumeAccess.objects.filter(volume=row).delete()
        workspaces.give(row)
    _changed(drive, actor, "change", before, drive_data(row))


@transaction.atomic
def drive_remove(*, drive: DataVolume, actor: Actor) -> None:
    """Its files stay. Running workers keep it; runs that wait and name it go on waiting. Idempotent."""
    row = DataVolume.objects.select_for_update(of=("self",)).filter(id=drive.id).first()
    if row is not None:
        before = drive_data(row)
        row.delete()
        _changed(drive, actor, "remove", before, None)


def drive_data(drive: DataVolume) -> dict[str, Any]:
    """All of it, for owners only: it tells a path of the host."""
    return {
        "name": drive.name,
        "kind": drive.kind,
        "path": drive.path,
        "pool": drive.pool and drive.pool.slug,
        "machine": drive.machine and drive.machine.name,
        "reach": drive.reach if drive.kind == DriveKind.MACHINE else None,
        "workspaces": {each.workspace.slug: access_word(each) for each in _access_of(drive)},
    }


def _access_of(drive: DataVolume) -> list[DataVolumeAccess]:
    return sorted(drive.access.all(), key=lambda access: access.workspace.slug)


def access_word(access: DataVolumeAccess) -> str:
    """`read`, or `write` for a workspace that may do both."""
    return READ if access.read_only else WRITE


def access_read(words: Mapping[str, str]) -> dict[str, bool]:
    """From words by workspace to whether it may only read."""
    return {workspace: word == READ for workspace, word in words.items()}


def _changed(drive: DataVolume, actor: Actor, action: str, before: Any, after: Any) -> None:
    audit_record(
        actor=actor,
        organization=drive.cluster.organization,
        action=f"drive.{action}",
        target=drive.name,
        before=before,
        after=after,
    )
    cluster_changed.send(sender=DataVolume, cluster_id=drive.cluster_id)


# --- What is wrong with an order ----------------------------------------------------------------------------


class _Place:
    """The pool or machine that an order names."""

    def __init__(self, cluster: Cluster, order: DriveOrder) -> None:
        # Locked as pool_lock does: a drive can't come to lie on a pool that is being removed.
        pools = Pool.objects.select_for_update(no_key=True).filter(cluster=cluster, slug=order.pool)
        self.pool = pools.first() if order.pool else None
        machines = Machine.objects.filter(cluster=cluster)
        self.machine = machines.filter(name=order.machine).first() if order.machine else None
        self.flaws = tuple(self._flaws(cluster, order))

    def _flaws(self, cluster: Cluster, order: DriveOrder) -> Iterator[FieldError]:
        if order.kind not in DriveKind.values:
            kinds = " or ".join(f"`{each}`" for each in DriveKind.values)
            yield FieldError("kind", "not_a_choice", f"{shown(order.kind)} is no kind of drive. Use {kinds}.")
            return
        yield from _reach_flaws(order.kind, order.reach)
        if order.kind == DriveKind.MACHINE and self.machine is None:
            said = (
                f"{cluster.slug} has no machine {shown(order.machine)}."
                if order.machine
                else "Name a machine."
            )
            yield FieldError(
                "machine", "unknown_machine", f"{said} A drive of this kind lies on one machine."
            )
        if order.kind == DriveKind.SHARED and order.machine:
            message = "A shared drive lies on every machine of the cluster or pool. Leave `machine` out."
            yield FieldError("machine", "not_shared", message)
        if order.kind == DriveKind.MACHINE and order.pool:
            message = "A drive on one machine has no pool. Leave `pool` out."
            yield FieldError("pool", "not_shared", message)
        elif order.pool and self.pool is None:
            yield FieldError("pool", "unknown_pool", f"{cluster.slug} has no pool {shown(order.pool)}.")


class _Workspaces:
    """The workspaces that may use a drive."""

    def __init__(self, cluster: Cluster, access: Mapping[str, bool]) -> None:
        there = Workspace.objects.filter(organization=cluster.organization_id, slug__in=access)
        self._access = access
        self._there = {workspace.slug: workspace for workspace in there}
        self.flaws = tuple(
            FieldError("workspaces", "unknown_workspace", f"There is no workspace {shown(slug)} here.")
            for slug in access
            if slug not in self._there
        )

    def give(self, drive: DataVolume) -> None:
        DataVolumeAccess.objects.bulk_create(
            DataVolumeAccess(volume=drive, workspace=self._there[slug], read_only=read_only)
            for slug, read_only in self._access.items()
        )


def _path_flaws(path: str) -> Iterator[FieldError]:
    try:
        check_absolute_path(path)
    except ValueError as error:
        yield FieldError("path", "bad_path", str(error))
        return
    if path == "/" or any(path == system or path.startswith(f"{system}/") for system in SYSTEM_PATHS):
        message = f"{shown(path)} belongs to the system. Choose a directory of its own."
        yield FieldError("path", "bad_path", message)


def _reach_flaws(kind: str, reach: str) -> Iterator[FieldError]:
    if reach not in Reach.values:
        known = " or ".join(f"`{each}`" for each in Reach.values)
        yield FieldError("reach", "not_a_choice", f"{shown(reach)} is no reach. Use {known}.")
    elif kind == DriveKind.SHARED and reach != Reach.LOCAL:
        message = "A shared drive is on every machine already. `reach` is for a drive on one machine."
        yield FieldError("reach", "not_shared", message)
