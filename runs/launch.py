"""What an agent gets to start a worker: everything but the phase, files and secrets, fixed when the gang is placed.

Drives and secrets come from tables of their own. Where a machine finds a drive is fixed with the placement
(`mounts_of` and `network_mounts_of`, in `Assignment.launch`). Of secrets only the names are stored there; their values
are read whenever a machine asks what it should be doing, and take the names' place then (`secrets_of`, for
runs/desired.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from django.db.models import Count

from machines.models import Gpu, Machine
from placement import GroupPlacement, Placement, Rank
from runs.models import Run, RunAttempt, Worker
from runs.preflight import Preflights, preflights_of
from runs.stores import DriveAt, DrivesAt
from wire import assignments as wire
from wire.environment import WorkerFacts, needs_imex, needs_rdma_devices, shm_bytes, worker_environment
from wire.quantities import MILLI
from wire.spec import DriveRef, RunDocument, TaskTemplate
from wire.spec.task import Probe


@dataclass(frozen=True, slots=True)
class Gang:
    """What all workers of an attempt share."""

    run: Run
    document: RunDocument
    attempt: RunAttempt
    groups: tuple[GroupPlacement, ...]
    templates: tuple[TaskTemplate, ...]
    workers: Sequence[Worker]
    machines: Mapping[int, Machine]
    hostnames: tuple[str, ...]
    leader_address: str
    gpu_uuids: Mapping[int, str]
    drives: DrivesAt
    mesh: Mapping[int, str]
    """Machine id → its worker's address on the mesh; empty where the gang shares its machines' networks."""
    preflights: Preflights
    whole: Mapping[str, int] | None
    """Of a worker that starts on its own: how many workers each group of its run has."""


def gang_of(
    run: Run,
    document: RunDocument,
    placement: Placement,
    workers: Sequence[Worker],
    machines: Mapping[int, Machine],
    attempt: RunAttempt,
    *,
    drives: DrivesAt = MappingProxyType({}),
    mesh: Mapping[int, str] = MappingProxyType({}),
) -> Gang:
    """`drives`: every drive that the run names.
    `mesh`: machine id → its worker's address on the mesh, for all of them or none."""
    gpus = [gpu for rank in placement.ranks for gpu in rank.gpu_ids]
    return Gang(
        run=run,
        document=document,
        attempt=attempt,
        groups=placement.groups,
        templates=tuple(group.template for group in document.groups()),
        workers=workers,
        machines=machines,
        hostnames=tuple(machines[rank.machine_id].name for rank in placement.ranks),
        leader_address=attempt.leader_address,
        gpu_uuids=dict(Gpu.objects.filter(id__in=gpus).values_list("id", "uuid")),
        drives=drives,
        mesh=mesh,
        preflights=preflights_of(document, placement, machines, attempt),
        whole=_whole(run),
    )


def _whole(run: Run) -> dict[str, int] | None:
    if run.parent_id is None:
        return None
    workers = Worker.objects.filter(run__parent=run.parent_id, active=True).order_by()
    return dict(workers.values_list("group").annotate(Count("id")))


def launch_of(gang: Gang, rank: Rank, worker: Worker, machine: Machine) -> dict[str, Any]:
    """The stored part of `wire.assignments.Assignment` for one worker."""
    template = gang.templates[rank.group]
    group = gang.groups[rank.group]
    resources = template.requested_resources
    verdict, asked = group.verdict.code, resources.network.interconnect
    leader = rank.rank == 0
    return {
        "run": gang.run.name,
        "worker": worker.name,
        "attempt": gang.attempt.number,
        "rank": worker.rank,
        "gang": len(gang.hostnames) > 1,
        "address": gang.mesh.get(machine.id) or machine.address,
        "on_mesh": bool(gang.mesh),
        "image": template.image,
        "command": template.command,
        "args": list(template.args),
        "env": worker_environment(_facts(gang, rank, worker, machine)),
        "working_dir": template.working_dir,
        "user": template.user,
        "gpu_uuids": [gang.gpu_uuids[gpu] for gpu in rank.gpu_ids],
        "rdma": needs_rdma_devices(verdict, asked),
        "imex": needs_imex(verdict, resources.topology.keep_within, group.shape.machines),
        "cpu_cores": rank.cpu_millicores / MILLI,
        "memory_bytes": rank.memory_bytes,
        "shm_bytes": shm_bytes(rank.memory_bytes),
        "rendezvous_port": gang.attempt.master_port if leader else None,
        "stop_signal": template.stop_signal,
        "stop_grace_seconds": template.stop_grace_seconds,
        "time_limit_seconds": template.time_limit_seconds,
        "stop_when_cut_off_seconds": gang.document.spec.stop_when_cut_off_seconds,
        "warn_signal_seconds": template.warn_signal_seconds,
        "hang_after_seconds": template.hang_after_seconds,
        "probes": probes_of(template),
        "preflight": gang.preflights.get(rank.rank),
        "mounts": mounts_of(template, gang.drives.get(machine.id, {})),
        "network_mounts": network_mounts_of(template, gang.drives.get(machine.id, {})),
        "secrets": [secret.model_dump(mode="json") for secret in secrets_of(template, {})],
    }


def features_needed(launch: Mapping[str, Any]) -> frozenset[wire.Feature]:
    """Which parts of a stored launch an agent must know of, beyond what all agents do."""
    return frozenset(feature for feature, field in wire.FEATURE_FIELDS.items() if launch.get(field))


def probes_of(template: TaskTemplate) -> dict[str, Any]:
    """The stored part of `wire.assignments.Probes`; empty without any."""
    given = {name: getattr(template.probes, name) for name in wire.Probes.model_fields}
    return {name: _probe(probe) for name, probe in given.items() if probe is not None}


def _probe(probe: Probe) -> dict[str, Any]:
    asked = wire.Probe(
        exec=(probe.exec.command, *probe.exec.args) if probe.exec else None,
        tcp=probe.tcp.port if probe.tcp else None,
        http=wire.HttpTarget(port=probe.http.port, path=probe.http.path) if probe.http else None,
        period_seconds=probe.period_seconds,
        timeout_seconds=probe.timeout_seconds,
        failure_threshold=probe.failure_threshold,
    )
    return asked.model_dump(mode="json", exclude_none=True)


def mounts_of(template: TaskTemplate, there: Mapping[str, DriveAt]) -> list[dict[str, Any]]:
    """The stored part of those of the group's drives that are directories of the machine itself.

    Raises KeyError for a drive that the machine lacks: it should not have been placed there.
    """
    refs = [ref for ref in template.datavolume_refs if there[ref.name].server is None]
    return [wire.DriveMount(**_mount(ref, there[ref.name])).model_dump(mode="json") for ref in refs]


def network_mounts_of(template: TaskTemplate, there: Mapping[str, DriveAt]) -> list[dict[str, Any]]:
    """The stored part of those that other machines export to this one."""
    found = []
    for ref in template.datavolume_refs:
        server = there[ref.name].server
        if server is not None:
            mount = wire.NetworkMount(
                **_mount(ref, there[ref.name]), machine=server.name, address=server.address
            )
            found.append(mount.model_dump(mode="json"))
    return found


def _mount(ref: DriveRef, at: DriveAt) -> dict[str, Any]:
    return {
        "drive": ref.name,
        "source": at.path,
        "mount_path": ref.mount_path,
        "read_only": ref.read_only,
        "sub_path": ref.sub_path or "",
    }


def secrets_of(template: TaskTemplate, values: Mapping[str, str]) -> tuple[wire.Secret, ...]:
    """What the agent gets of the group's secrets; `values`: secret → its value. Never to be stored.

    For a secret that has been removed since no value is sent: a worker that isn't prepared yet waits, and says so.
    """
    return tuple(
        wire.Secret(name=ref.name, env=ref.env, path=ref.mount_path, value=values.get(ref.name))
        for ref in template.secret_refs
    )


def _facts(gang: Gang, rank: Rank, worker: Worker, machine: Machine) -> WorkerFacts:
    template = gang.templates[rank.group]
    group = gang.groups[rank.group]
    whole = gang.whole
    return WorkerFacts(
        run=gang.run.name,
        worker=worker.name,
        workspace=gang.run.workspace.slug,
        cluster=gang.run.cluster.slug,
        attempt=gang.attempt.number,
        job_id=gang.run.id,
        rank=worker.rank,
        world_size=len(gang.hostnames) if whole is None else sum(whole.values()),
        group_name=worker.group,
        group_rank=worker.group_rank,
        group_size=group.shape.machines if whole is None else whole[worker.group],
        gpu_count=len(rank.gpus),
        cpus=max(1, rank.cpu_millicores // MILLI),
        machine=machine.name,
        hostnames=gang.hostnames,
        leader_address=gang.leader_address,
        leader_worker=gang.workers[0].name,
        master_port=gang.attempt.master_port,
        network=group.verdict.code,
        interconnect=template.requested_resources.network.interconnect,
        ib_ports=rank.ports,
        restarts=gang.run.restarts,
        user_env=template.env,
        alone=whole is not None,
    )
