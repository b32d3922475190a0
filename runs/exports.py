"""Drives that a machine exports to others while their workers are there: fixed when these are placed."""

from collections.abc import Collection, Iterable

from machines.models import DataVolume, Machine
from machines.services import machines_lock, machines_revise
from machines.states import Reach
from runs.models import Assignment, DriveExport
from wire import assignments as wire


def servers_of(cluster_id: int, drives: Collection[str]) -> set[int]:
    """The machines of those of the named drives that others reach, to be locked with those that mount them."""
    found = DataVolume.objects.filter(cluster=cluster_id, name__in=drives, reach=Reach.NETWORK)
    return set(found.values_list("machine_id", flat=True)) if drives else set()


def exports_create(assignments: Iterable[Assignment]) -> None:
    """Of new assignments with network mounts. The machines that export are told."""
    wanted = [
        (assignment, mount) for assignment in assignments for mount in assignment.launch["network_mounts"]
    ]
    if not wanted:
        return
    clusters = {assignment.machine.cluster_id for assignment, _ in wanted}
    names = {mount["machine"] for _, mount in wanted}
    servers = dict(Machine.objects.filter(cluster__in=clusters, name__in=names).values_list("name", "id"))
    DriveExport.objects.bulk_create(
        DriveExport(
            assignment=assignment,
            machine_id=servers[mount["machine"]],
            drive=mount["drive"],
            path=mount["source"],
            read_only=mount["read_only"],
        )
        for assignment, mount in wanted
    )
    machines_revise(sorted(servers.values()), placement_changed=False)


def exports_end(machine_id: int, assignments: Collection[Assignment]) -> None:
    """Tells the machines that export to assignments of a machine which are gone.

    They are locked together with that machine: one after the other they could be locked against the order of ids.
    """
    over = DriveExport.objects.filter(assignment__in=assignments)
    if servers := set(over.values_list("machine_id", flat=True)):
        machines_lock({machine_id, *servers})
        over.delete()
        machines_revise(servers, placement_changed=False)


def exports_of(machine: Machine) -> tuple[wire.Export, ...]:
    """All that the machine is to export now. Who may write and read a drive may write it."""
    there = DriveExport.objects.filter(machine=machine, assignment__gone_at=None)
    rows = there.order_by("path").values_list("drive", "path", "assignment__machine__address", "read_only")
    return tuple(_merged(list(rows)))


def _merged(rows: Collection[tuple[str, str, str, bool]]) -> Iterable[wire.Export]:
    """One for each directory and client."""
    reading = {(path, client): True for _, path, client, _ in rows}
    for _, path, client, read_only in rows:
        reading[path, client] &= read_only
    names = {path: drive for drive, path, _, _ in rows}
    for (path, client), read_only in sorted(reading.items()):
        yield wire.Export(drive=names[path], path=path, client=client, read_only=read_only)
