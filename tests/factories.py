"""Small worlds for tests: an organization with three people, a cluster with machines, runs in every state.

Ana owns the organization, Bea edits the workspace, Cyd is a stranger to both. Runs that wait are submitted as people
submit them; what a pass and agents would do to them (`run_place`, `run_start`) is written as rows.
"""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from django.contrib.auth.hashers import make_password
from django.utils import timezone

from machines.drives import DriveOrder, drive_create
from machines.models import (
    Cluster,
    DataVolume,
    Fabric,
    Gpu,
    Machine,
    MachineLabel,
    Pool,
    RdmaPort,
    WorkspacePool,
)
from machines.states import RACK_LABEL, Health
from runs.events import run_note
from runs.models import Allocation, Assignment, LogChunk, Run, RunAttempt, Worker, WorkerEvent
from runs.services import run_submit
from runs.states import AttemptState, Phase, RunState, WorkerState
from tenancy.access import Actor
from tenancy.models import (
    Membership,
    Organization,
    OrganizationMembership,
    RegistryCredential,
    Secret,
    User,
    Workspace,
)
from tenancy.registries import credential_create
from tenancy.roles import OrganizationRole, WorkspaceRole
from tenancy.secrets import secret_create

PASSWORD = "a-long-password-for-tests"
GIB = 1024**3


@dataclass(frozen=True)
class House:
    organization: Organization
    workspace: Workspace
    cluster: Cluster
    pool: Pool
    ana: User
    """Owner of the organization."""
    bea: User
    """Editor of the workspace."""
    cyd: User
    """Belongs to another organization."""
    vic: User
    """Viewer of the workspace."""
    fabrics: dict[str, Fabric] = field(default_factory=dict)


@cache
def password_hashed() -> str:
    """Hashed once for all people: it costs a third of a second, on purpose."""
    return make_password(PASSWORD)


def user_make(name: str) -> User:
    return User.objects.create(username=name, email=f"{name}@example.com", password=password_hashed())


def actor_of(user: User) -> Actor:
    return Actor(user=user)


def house_make() -> House:
    organization = Organization.objects.create(slug="acme", name="Acme")
    workspace = Workspace.objects.create(organization=organization, slug="vision", name="Vision")
    cluster = Cluster.objects.create(organization=organization, slug="main", name="Main", pass_no=18204)
    pool = Pool.objects.create(cluster=cluster, slug="h100", name="H100")
    WorkspacePool.objects.create(workspace=workspace, pool=pool)
    people = {name: user_make(name) for name in ("ana", "bea", "cyd", "vic")}
    OrganizationMembership.objects.create(
        organization=organization, user=people["ana"], role=OrganizationRole.OWNER
    )
    for name, role in (("bea", WorkspaceRole.EDITOR), ("vic", WorkspaceRole.VIEWER)):
        OrganizationMembership.objects.create(organization=organization, user=people[name])
        Membership.objects.create(workspace=workspace, user=people[name], role=role)
    other = Organization.objects.create(slug="other", name="Other")
    elsewhere = Workspace.objects.create(organization=other, slug="secret", name="Secret")
    OrganizationMembership.objects.create(organization=other, user=people["cyd"], role=OrganizationRole.OWNER)
    Membership.objects.create(workspace=elsewhere, user=people["cyd"], role=WorkspaceRole.ADMIN)
    return House(
        organization,
        workspace,
        cluster,
        pool,
        ana=people["ana"],
        bea=people["bea"],
        cyd=people["cyd"],
        vic=people["vic"],
    )


def machine_make(
    house: House,
    name: str,
    *,
    gpus: int = 8,
    model: str = "H100",
    fabric: str | None = "ib-a",
    rack: str | None = "r1",
    gbps: int = 400,
    suspect: tuple[int, ...] = (),
    faulty: tuple[int, ...] = (),
    simulated: bool = True,
    seen: bool = True,
) -> Machine:
    """A machine that its agent has just reported; `rack` is a label that the machine itself reports."""
    machine = Machine.objects.create(
        cluster=house.cluster,
        pool=house.pool,
        name=name,
        runtime="bubblewrap",
        agent_version="0.1.0",
        simulated=simulated,
        address=f"10.20.0.{Machine.objects.count() + 11}",
        cpu_cores=gpus * 12,
        memory_bytes=gpus * 128 * GIB,
        last_seen_at=timezone.now() if seen else None,
    )
    rows = []
    for index in range(gpus):
        health = Health.FAULTY if index in faulty else Health.SUSPECT if index in suspect else Health.HEALTHY
        evidence = {"suspect": "NVLink errors growing", "faulty": "fell off the bus"}.get(health, "")
        rows.append(
            Gpu(
                machine=machine,
                uuid=f"GPU-{name}-{index}",
                index=index,
                product=f"NVIDIA {model} 80GB HBM3",
                model=model,
                memory_bytes=80 * GIB,
                health=health,
                evidence=evidence,
                reported_health=health,
                reported_evidence=evidence,
            )
        )
    Gpu.objects.bulk_create(rows)
    if fabric is not None:
        _ports_make(house, machine, gpus, fabric, gbps)
    if rack is not None:
        MachineLabel.objects.create(machine=machine, key=RACK_LABEL, value=rack, found=True)
    return machine


def _ports_make(house: House, machine: Machine, count: int, fabric: str, gbps: int) -> None:
    if fabric not in house.fabrics:
        key = f"0xfe800000000000{len(house.fabrics) + 0xC1:x}"
        house.fabrics[fabric] = Fabric.objects.create(cluster=house.cluster, key=key, name=fabric)
    RdmaPort.objects.bulk_create(
        RdmaPort(
            machine=machine,
            device=f"mlx5_{index}",
            port=1,
            link_layer="InfiniBand",
            state="ACTIVE",
            rate_gbps=gbps,
            fabric=house.fabrics[fabric],
        )
        for index in range(count)
    )


@dataclass(frozen=True)
class Stores:
    """One of each, open to the workspace."""

    secret: Secret
    credential: RegistryCredential
    drive: DataVolume


def stores_make(house: House, name: str | None = None) -> Stores:
    """The secret `hf`, the registry credential `ngc` and the drive `imagenet`, which may only be read; or all
    three with one name."""
    ana = actor_of(house.ana)
    drive = DriveOrder(name=name or "imagenet", kind="shared", path="/srv/imagenet", access={"vision": True})
    return Stores(
        secret_create(workspace=house.workspace, name=name or "hf", value="hf_the-value-of-it", actor=ana),
        credential_create(
            workspace=house.workspace,
            name=name or "ngc",
            registry="nvcr.io",
            username="$oauthtoken",
            secret="its-password",
            actor=ana,
        ),
        drive_create(cluster=house.cluster, order=drive, actor=ana),
    )


def document_make(
    name: str = "ddp-resnet50", *, gpus: int = 16, machines: int = 2, **spec: Any
) -> dict[str, Any]:
    """The reference's request, in whichever size."""
    return {
        "metadata": {"name": name, "labels": {"project": "fabric-check"}},
        "spec": {
            "start": "Gang",
            "on_failure": "RestartJob",
            **spec,
            "task_template": {
                "image": "nvcr.io/nvidia/pytorch:24.08-py3",
                "command": "bash",
                "args": ["-c", "exec torchrun /app/train_ddp.py"],
                "env": {"NCCL_DEBUG": "INFO"},
                "requested_resources": {
                    "gpu_requests": {"count": gpus, "models": ["H100"], "healthy_only": True},
                    "machines": machines,
                    "per_gpu": {"cpu_cores": 12, "memory_bytes": 100 * GIB},
                    "network": {"interconnect": "infiniband", "min_gbps": 400},
                    "topology": {"keep_within": "fabric"},
                },
            },
        },
    }


def run_pending(
    house: House,
    name: str = "ddp-resnet50",
    *,
    by: User | None = None,
    document: dict[str, Any] | None = None,
) -> Run:
    """A run in the queue, submitted as people do."""
    text = json.dumps(document or document_make(name), indent=2)
    run, _ = run_submit(workspace=house.workspace, actor=actor_of(by or house.bea), text=text)
    return run


def run_place(house: House, run: Run, machines: list[Machine], *, gpus: int = 8) -> RunAttempt:
    """As a pass places it: Starting, an attempt, an assignment with its GPUs for each worker."""
    now = timezone.now()
    run.attempt_no += 1
    run.state, run.placed_at = RunState.STARTING, now
    run.reason = {"code": "starting", "ready": 0, "workers": len(machines)}
    run.explanation = None
    run.save()
    run_note(run, run.reason, at=now)
    attempt = RunAttempt.objects.create(
        run=run,
        number=run.attempt_no,
        network="ib_fabric" if len(machines) > 1 else "one_machine",
        fabric="ib-a",
        shape=[{"machines": len(machines), "gpus": gpus}],
        leader_address=machines[0].address,
        master_port=29500,
        pass_no=18204,
        placed_at=now,
    )
    for worker, machine in zip(run.workers.filter(active=True).order_by("rank"), machines, strict=True):
        _worker_place(attempt, worker, machine, gpus, now)
    return attempt


def _worker_place(attempt: RunAttempt, worker: Worker, machine: Machine, gpus: int, now: datetime) -> None:
    held = Allocation.objects.filter(released_at=None, gpu__isnull=False).values("gpu_id")
    free = list(machine.gpus.exclude(id__in=held).order_by("index")[:gpus])
    env = {"RANK": str(worker.rank), "WORLD_SIZE": "2", "MASTER_ADDR": attempt.leader_address}
    assignment = Assignment.objects.create(
        attempt=attempt,
        worker=worker,
        machine=machine,
        revision=1,
        placed_at=now,
        launch={"env": env, "gpu_uuids": [gpu.uuid for gpu in free], "memory_bytes": 800 * GIB, "gang": True},
    )
    for gpu in free:
        Allocation.objects.create(assignment=assignment, machine=machine, gpu=gpu, created_at=now)
    names = [gpu.index for gpu in free]
    reason = {"code": "placed", "machine": machine.name, "gpus": names, "network": attempt.network}
    worker_set(worker, WorkerState.PLACED, reason, assignment, now)


def run_start(attempt: RunAttempt) -> Run:
    """As the gang comes up: every worker Running, the run Running."""
    run, now = attempt.run, timezone.now()
    attempt.state, attempt.opened_at, attempt.running_at = AttemptState.RUNNING, now, now
    attempt.save()
    count = attempt.assignments.count()
    run.state, run.started_at = RunState.RUNNING, now
    run.reason = {"code": "running", "running": count, "workers": count}
    run.save()
    run_note(run, run.reason, at=now)
    for assignment in attempt.assignments.select_related("worker", "machine"):
        assignment.state, assignment.phase, assignment.started_at = WorkerState.RUNNING, Phase.START, now
        assignment.save()
        reason = {"code": "worker_running", "machine": assignment.machine.name}
        worker_set(assignment.worker, WorkerState.RUNNING, reason, assignment, now)
    return run


def run_fail(attempt: RunAttempt, *, code: int = 1) -> Run:
    """As it ends when its last worker failed: nothing of it is left on the machines."""
    run, now = attempt.run, timezone.now()
    attempt.state, attempt.outcome, attempt.ended_at = AttemptState.ENDED, "failed", now
    attempt.save()
    last = attempt.assignments.select_related("worker", "machine").order_by("-worker__rank")[0]
    exit_ = {"kind": "exited", "code": code}
    run.state, run.ended_at = RunState.FAILED, now
    run.reason = {"code": "failed", "worker": last.worker.name, "machine": last.machine.name, "exit": exit_}
    run.save()
    run_note(run, run.reason, at=now)
    for assignment in attempt.assignments.select_related("worker", "machine"):
        assignment.state, assignment.ended_at, assignment.gone_at = WorkerState.FAILED, now, now
        assignment.exit, assignment.log_final = exit_, assignment.log_size
        assignment.save()
        reason = {"code": "exited", "machine": assignment.machine.name, "exit": exit_}
        worker_set(assignment.worker, WorkerState.FAILED, reason, assignment, now)
    Allocation.objects.filter(assignment__attempt=attempt).update(released_at=now)
    return run


def worker_set(
    worker: Worker, state: WorkerState, reason: dict[str, Any], assignment: Assignment, at: datetime
) -> None:
    Worker.objects.filter(id=worker.id).update(state=state, reason=reason)
    WorkerEvent.objects.create(
        worker=worker,
        assignment=assignment,
        at=at,
        attempt_no=assignment.attempt.number,
        state=state,
        reason=reason,
    )


def log_write(assignment: Assignment, data: bytes) -> None:
    """One more chunk at the end of a worker's log."""
    LogChunk.objects.create(
        assignment=assignment,
        offset=assignment.log_size,
        size=len(data),
        at=timezone.now(),
        lines=data.count(b"\n"),
        data=data,
    )
    assignment.log_size += len(data)
    assignment.save(update_fields=["log_size"])


def queued_ago(run: Run, **ago: float) -> None:
    """Moves the run's submission into the past."""
    at = timezone.now() - timedelta(**ago)
    Run.objects.filter(id=run.id).update(created_at=at, queued_at=at)
