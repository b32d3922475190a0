"""Drives of a house, and runs that name them."""

from typing import Any

from machines.drives import DriveOrder, drive_create
from machines.models import DataVolume
from tests import factories
from tests.support.gangs import Gang


def drive(house, name, *, read_only=False, **order) -> DataVolume:
    """A drive that the workspace may use."""
    order = {"kind": "shared", "path": f"/srv/{name}", "access": {"vision": read_only}, **order}
    return drive_create(
        cluster=house.cluster, order=DriveOrder(name=name, **order), actor=factories.actor_of(house.ana)
    )


def local(house, name, machine="gpu-02", **order) -> DataVolume:
    return drive(house, name, kind="machine", machine=machine, **order)


def ref(name, path=None, **more) -> dict[str, Any]:
    return {"name": name, "mount_path": path or f"/data/{name}", **more}


def document_with(
    *refs: dict[str, Any], name: str = "reader", machines: int = 1, gpus: int = 8
) -> dict[str, Any]:
    """`gpus`: of each machine."""
    document = factories.document_make(name, gpus=gpus * machines, machines=machines)
    document["spec"]["task_template"]["datavolume_refs"] = list(refs)
    return document


def submitted(house, document) -> Gang:
    return Gang(factories.run_pending(house, document=document))
