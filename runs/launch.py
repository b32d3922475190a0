"""What an agent gets to start a worker: everything but the phase and the files, fixed when the gang is placed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from machines.models import Gpu, Machine
from placement import GroupPlacement, Placement, Rank
from runs.models import Run, RunAttempt, Worker
from wire.environment import WorkerFacts, needs_imex, needs_rdma_devices, shm_bytes, worker_environment
from wire.quantities import MILLI
from wire.spec import RunDocument, TaskTemplate


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


def gang_of(
    run: Run,
    document: RunDocument,
    placement: Placement,
    workers: Sequence[Worker],
    machines: Mapping[int, Machine],
    attempt: RunAttempt,
) -> Gang:
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
    )


def launch_of(gang: Gang, rank: Rank, worker: Worker, machine: Machine) -> dict[str, Any]:
    """The stored part of `wire.agent_messages.Assignment` for one worker."""
    template = gang.templates[rank.group]
    group = gang.groups[rank.group]
    asked = template.requested_resources.network.interconnect
    leader = rank.rank == 0
    return {
        "run": gang.run.name,
        "worker": worker.name,
        "attempt": gang.attempt.number,
        "rank": rank.rank,
        "gang": len(gang.hostnames) > 1,
        "image": template.image,
        "command": template.command,
        "args": list(template.args),
        "env": worker_environment(_facts(gang, rank, worker, machine)),
        "working_dir": template.working_dir,
        "user": template.user,
        "gpu_uuids": [gang.gpu_uuids[gpu] for gpu in rank.gpu_ids],
        "rdma": needs_rdma_devices(group.verdict.code, asked),
        "imex": needs_imex(group.verdict.code, group.shape.machines),
        "cpu_cores": rank.cpu_millicores / MILLI,
        "memory_bytes": rank.memory_bytes,
        "shm_bytes": shm_bytes(rank.memory_bytes),
        "rendezvous_port": gang.attempt.master_port if leader else None,
        "stop_signal": template.stop_signal,
        "stop_grace_seconds": template.stop_grace_seconds,
        "time_limit_seconds": template.time_limit_seconds,
        "stop_when_cut_off_seconds": gang.document.spec.stop_when_cut_off_seconds,
    }


def _facts(gang: Gang, rank: Rank, worker: Worker, machine: Machine) -> WorkerFacts:
    template = gang.templates[rank.group]
    group = gang.groups[rank.group]
    return WorkerFacts(
        run=gang.run.name,
        worker=worker.name,
        workspace=gang.run.workspace.slug,
        cluster=gang.run.cluster.slug,
        attempt=gang.attempt.number,
        job_id=gang.run.id,
        rank=rank.rank,
        world_size=len(gang.hostnames),
        group_name=worker.group,
        group_rank=worker.group_rank,
        group_size=group.shape.machines,
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
    )
