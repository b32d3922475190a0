"""Drives: owners make them in a cluster and open them to workspaces, which see what they may use."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from console.api import schema
from console.api.base import ClusterView, WorkspaceView
from console.api.bodies import body_of
from console.api.pages import PAGE_PARAMETERS, page_by_name, page_of
from console.api.parameters import check_known
from console.api.store_shapes import DriveAnswer, DriveChange, DriveOrder, OpenDriveAnswer
from machines import drives
from machines.models import DataVolume, DataVolumeAccess
from tenancy.roles import Permission


def _present(drive: DataVolume) -> dict[str, Any]:
    """`drive` as `drives_of` loads it."""
    return {
        **drives.drive_data(drive),
        "created_at": drive.created_at,
        "changed_at": drive.changed_at,
        "changed_by": drive.changed_by,
    }


def _open_present(access: DataVolumeAccess) -> dict[str, Any]:
    drive = access.volume
    return {
        "name": drive.name,
        "cluster": drive.cluster.slug,
        "access": drives.access_word(access),
        "kind": drive.kind,
        "pool": drive.pool.slug if drive.pool else None,
        "machine": drive.machine.name if drive.machine else None,
    }


class Drives(ClusterView):
    @schema.operation(
        "drives_list",
        {200: schema.list_of(DriveAnswer)},
        parameters=[schema.LIMIT, schema.NAME_CURSOR],
        refusals=schema.WRITE,
    )
    def get(self, request: Request, **_: str) -> Response:
        """The cluster's drives by name."""
        cluster = self.cluster(request, Permission.OWN)
        check_known(request, PAGE_PARAMETERS)
        return page_by_name(drives.drives_of(cluster), request).answer(_present)

    @schema.operation("drive_create", {201: DriveAnswer}, body=DriveOrder, refusals=(*schema.SEND, 409))
    def post(self, request: Request, **_: str) -> Response:
        """Makes a drive of a directory of the machines."""
        cluster = self.cluster(request, Permission.OWN)
        check_known(request)
        fields = body_of(request, DriveOrder).model_dump()
        order = drives.DriveOrder(access=drives.access_read(fields.pop("workspaces")), **fields)
        drive = drives.drive_create(cluster=cluster, order=order, actor=self.actor(request))
        return Response(_present(drives.drive_find(cluster, drive.name)), status=201)


class OneDrive(ClusterView):
    def drive(self, request: Request) -> DataVolume:
        cluster = self.cluster(request, Permission.OWN)
        check_known(request)
        return drives.drive_find(cluster, self.kwargs["drive"])

    @schema.operation("drive_show", {200: DriveAnswer}, refusals=schema.WRITE)
    def get(self, request: Request, **_: str) -> Response:
        """A drive: where it lies and who may use it."""
        return Response(_present(self.drive(request)))

    @schema.operation("drive_change", {200: DriveAnswer}, body=DriveChange, refusals=schema.SEND)
    def patch(self, request: Request, **_: str) -> Response:
        """Changes what is given, for attempts that start from now on; running workers keep what they have."""
        drive, change = self.drive(request), body_of(request, DriveChange)
        access = None if change.workspaces is None else drives.access_read(change.workspaces)
        drives.drive_change(
            drive=drive, actor=self.actor(request), path=change.path, reach=change.reach, access=access
        )
        return Response(_present(self.drive(request)))

    @schema.operation("drive_remove", {204: None}, refusals=schema.WRITE)
    def delete(self, request: Request, **_: str) -> Response:
        """Removes the drive, not its files; running workers keep it, runs that name it wait."""
        drives.drive_remove(drive=self.drive(request), actor=self.actor(request))
        return Response(status=204)


class WorkspaceDrives(WorkspaceView):
    @schema.operation(
        "workspace_drives_list",
        {200: schema.list_of(OpenDriveAnswer)},
        parameters=[schema.LIMIT, schema.CURSOR],
    )
    def get(self, request: Request, **_: str) -> Response:
        """Drives that the workspace may use, newest first."""
        workspace = self.workspace(request, Permission.READ_RUNS)
        check_known(request, PAGE_PARAMETERS)
        return page_of(drives.drive_access_of(workspace), request).answer(_open_present)
