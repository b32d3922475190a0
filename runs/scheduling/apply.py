"""Writes a placement: the whole gang or nothing. What the pass saw is checked again under locks."""

from collections.abc import Collection, Mapping, MutableMapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from common.clock import database_now
from machines.models import Cluster, Machine
from machines.services import machines_lock, machines_revise
from placement import Placement, Rank
from runs.events import WorkerMove, run_move, workers_move
from runs.exports import exports_create, servers_of
from runs.launch import Gang, gang_of, launch_of
from runs.meeting import mesh_addresses
from runs.models import Allocation, Assignment, Run, RunAttempt, Worker
from runs.queue import NOT_QUEUED, runs_leave_queue
from runs.scheduling.ports import port_choose
from runs.states import AttemptState, RunState, WorkerState
from runs.stores import DrivesAt, Needs, drives_at, stores_lacking, stores_of
from runs.workers import workers_arrange
from wire.quantities import MILLI
from wire.spec import RunDocument, Shape


class Stale(Exception):
    """Something is no longer as the pass saw it."""


def placement_apply(
    run: Run,
    document: RunDocument,
    placement: Placement,
    versions: MutableMapping[int, int],
    cluster: Cluster,
) -> bool:
    """True when the gang is placed. False: the cluster or the run has changed; the next pass decides anew.
    Raises NoPort when only the leader's rendezvous port is missing.

    `versions` (machine id → version) are what the pass read; those of the machines used rise with the placement.
    """
    try:
        with transaction.atomic():
            _apply(run, document, placement, versions, cluster)
    except (Stale, IntegrityError):
        return False
    for rank in placement.ranks:
        versions[rank.machine_id] += 1
    return True


def _apply(
    run: Run, document: RunDocument, placement: Placement, versions: Mapping[int, int], cluster: Cluster
) -> None:
    now = database_now()
    _run_claim(run, cluster, placement, now)
    workers = workers_arrange(
        run, document, [Shape(g.shape.machines, g.shape.gpus) for g in placement.groups]
    )
    servers = servers_of(run.cluster_id, stores_of(document).drives)
    machines = _machines_claim(placement, versions, servers)
    leader = machines[placement.ranks[0].machine_id]
    port = port_choose(leader, document)
    attempt = _attempt_create(run, placement, leader, port, cluster, now)
    drives = _drives(run, document, placement, machines)
    mesh = mesh_addresses(placement, machines)
    gang = gang_of(run, document, placement, workers, machines, attempt, drives=drives, mesh=mesh)
    _members_create(gang, placement, port, now)
    machines_revise(machines, placement_changed=True)


def _run_claim(run: Run, cluster: Cluster, placement: Placement, now: datetime) -> None:
    if not Cluster.objects.filter(id=cluster.id, pass_no=cluster.pass_no).exists():
        raise Stale("a newer pass has begun")
    waiting = Run.objects.select_for_update(no_key=True).waiting()
    locked = waiting.filter(id=run.id).first()
    if locked is None or locked.edition != run.edition:
        raise Stale("the run has changed")
    starting = {"code": "starting", "ready": 0, "workers": len(placement.ranks)}
    runs_leave_queue([run.id], now)
    run.attempt_no = locked.attempt_no + 1
    run_move(
        run,
        RunState.STARTING,
        starting,
        was=RunState.PENDING,
        attempt_no=run.attempt_no,
        placed_at=now,
        **NOT_QUEUED,
    )


def _machines_claim(
    placement: Placement, versions: Mapping[int, int], servers: Collection[int]
) -> dict[int, Machine]:
    """Those of the placement, locked in one go with the `servers` that export drives to them."""
    used = {rank.machine_id for rank in placement.ranks}
    locked = machines_lock(used | set(servers))
    machines = {key: machine for key, machine in locked.items() if key in used}
    for rank in placement.ranks:
        machine = machines.get(rank.machine_id)
        if machine is None or machine.version != versions[rank.machine_id]:
            raise Stale(f"{rank.machine_name} has changed")
    return machines


def _drives(
    run: Run, document: RunDocument, placement: Placement, machines: Mapping[int, Machine]
) -> DrivesAt:
    """What the run names must still be open to it."""
    stores = stores_of(document)
    if stores_lacking(run.cluster_id, {run.id: Needs(run.workspace_id, stores)}):
        raise Stale("a secret, drive or registry credential was taken away")
    there = drives_at(machines.values(), stores.drives)
    named = [{ref.name for ref in group.template.datavolume_refs} for group in document.groups()]
    for rank in placement.ranks:
        if not named[rank.group] <= there[rank.machine_id].keys():
            raise Stale(f"{rank.machine_name} has lost a drive")
    return there


def _attempt_create(
    run: Run, placement: Placement, leader: Machine, port: int, cluster: Cluster, now: datetime
) -> RunAttempt:
    group = placement.groups[0]
    return RunAttempt.objects.create(
        run=run,
        number=run.attempt_no,
        state=AttemptState.STARTING,
        network=placement.verdict.code,
        fabric=group.fabric or "",
        shape=[{"machines": g.shape.machines, "gpus": g.shape.gpus} for g in placement.groups],
        leader_address=leader.address,
        master_port=port,
        pass_no=cluster.pass_no,
        placed_at=now,
    )


def _members_create(gang: Gang, placement: Placement, port: int, now: datetime) -> None:
    """Assignments, what they hold and their workers' histories, in a few statements however large the gang."""
    pairs = list(zip(placement.ranks, gang.workers, strict=True))
    assignments = [_assignment(gang, rank, worker, now) for rank, worker in pairs]
    Assignment.objects.bulk_create(assignments)
    exports_create(assignments)
    held = [
        row
        for assignment, rank in zip(assignments, placement.ranks, strict=True)
        for row in _allocations(assignment, rank, port if rank.rank == 0 else None, gang, now)
    ]
    Allocation.objects.bulk_create(held)
    moves = [
        WorkerMove(worker, WorkerState.PLACED, _placed(gang, rank), assignment)
        for (rank, worker), assignment in zip(pairs, assignments, strict=True)
    ]
    workers_move(moves, attempt_no=gang.attempt.number, at=now)


def _assignment(gang: Gang, rank: Rank, worker: Worker, now: datetime) -> Assignment:
    machine = gang.machines[rank.machine_id]
    return Assignment(
        attempt=gang.attempt,
        worker=worker,
        machine=machine,
        launch=launch_of(gang, rank, worker, machine),
        placed_at=now,
        revision=machine.desired_revision + 1,
    )


def _placed(gang: Gang, rank: Rank) -> dict[str, Any]:
    return {
        "code": "placed",
        "machine": rank.machine_name,
        "gpus": list(rank.gpus),
        "network": gang.attempt.network,
    }


def _allocations(
    assignment: Assignment, rank: Rank, port: int | None, gang: Gang, now: datetime
) -> list[Allocation]:
    base = {"assignment": assignment, "machine_id": rank.machine_id, "created_at": now}
    amounts = {"cpu_cores": rank.cpu_millicores / MILLI, "memory_bytes": rank.memory_bytes}
    return [
        *(Allocation(**base, gpu_id=gpu) for gpu in rank.gpu_ids),
        Allocation(**base, **amounts, port=port, mesh_address=gang.mesh.get(rank.machine_id)),
    ]
