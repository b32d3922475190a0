"""Runs and everything that happens to them.

Locks are always taken in the order Run, RunAttempt, Worker, Machine (design: data model).
"""

import uuid

from django.db import models
from django.db.models import F, Q

from machines.models import Cluster, Gpu, Machine
from runs.states import (
    ASSIGNMENT_STATES,
    RUN_ENDED,
    AttemptState,
    Outcome,
    Phase,
    RunState,
    Wanted,
    WorkerState,
)
from tenancy.models import User, Workspace


class RunQuerySet(models.QuerySet["Run"]):
    def waiting(self) -> "RunQuerySet":
        return self.filter(state=RunState.PENDING, wanted=Wanted.RUN)

    def live(self) -> "RunQuerySet":
        return self.exclude(state__in=RUN_ENDED)

    def of(self, workspace: Workspace) -> "RunQuerySet":
        return self.filter(workspace=workspace)


class Run(models.Model):
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="runs")
    cluster = models.ForeignKey(Cluster, models.PROTECT, related_name="runs")
    name = models.CharField(max_length=52)
    labels = models.JSONField(default=dict)
    document = models.JSONField()
    """The run document with its defaults filled in."""
    submitted = models.TextField()
    """The document's text as it was sent."""
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    idempotency_key = models.CharField(max_length=200, null=True)  # noqa: DJ001 - NULL is never equal

    state = models.CharField(max_length=10, choices=RunState.choices, default=RunState.PENDING)
    reason = models.JSONField(default=dict)
    """{"code", …numbers}: worded by runs/reasons.py."""
    wanted = models.CharField(max_length=6, choices=Wanted.choices, default=Wanted.RUN)
    priority = models.SmallIntegerField(default=0)
    stopped_by = models.CharField(max_length=200, blank=True)
    restart_asked = models.BooleanField(default=False)
    """An owner wants the present attempt ended and the run queued anew."""
    not_before = models.DateTimeField(null=True)
    """Back-off: no pass places it earlier."""

    patient_since = models.DateTimeField(null=True)
    """The first pass that could have placed it; its patience counts from there and never anew."""

    attempt_no = models.PositiveIntegerField(default=0)
    restarts = models.PositiveIntegerField(default=0)
    backoff_step = models.PositiveSmallIntegerField(default=0)
    voids = models.PositiveSmallIntegerField(default=0)
    """Attempts in a row that never ran as a whole, all of one kind."""
    voids_of_any_kind = models.PositiveSmallIntegerField(default=0)
    void_kind = models.CharField(max_length=40, blank=True)
    avoid_machines = models.JSONField(default=dict)
    """Machine id -> epoch seconds until when it is used last for this run."""

    explanation = models.JSONField(null=True)
    """Codes and numbers of the last pass that refused it."""
    explained_pass = models.BigIntegerField(null=True)
    explained_at = models.DateTimeField(null=True)
    set_aside = models.TextField(blank=True)
    """The error of a pass that could not judge it, for administrators."""

    created_at = models.DateTimeField(auto_now_add=True)
    queued_at = models.DateTimeField()
    placed_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    changed_at = models.DateTimeField(auto_now=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint("workspace", "name", name="run_name_unique"),
            models.UniqueConstraint("workspace", "idempotency_key", name="run_idempotency_unique"),
            models.CheckConstraint(condition=Q(state__in=RunState.values), name="run_state_known"),
            models.CheckConstraint(condition=Q(wanted__in=Wanted.values), name="run_wanted_known"),
        )
        indexes = (
            models.Index(
                "cluster",
                F("priority").desc(),
                "queued_at",
                name="run_queue",
                condition=Q(state=RunState.PENDING),
            ),
            models.Index("workspace", F("id").desc(), name="run_by_workspace"),
            models.Index("state", name="run_live", condition=~Q(state__in=sorted(RUN_ENDED))),
        )

    def __str__(self) -> str:
        return self.name


class WorkloadName(models.Model):
    """Runs and workers share one namespace in a workspace: a run `a-1` and worker 1 of `a` would clash."""

    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="+")
    name = models.CharField(max_length=63)
    run = models.ForeignKey(Run, models.CASCADE, related_name="names")

    class Meta:
        constraints = (models.UniqueConstraint("workspace", "name", name="workload_name_unique"),)

    def __str__(self) -> str:
        return self.name


class RunAttempt(models.Model):
    run = models.ForeignKey(Run, models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=8, choices=AttemptState.choices, default=AttemptState.STARTING)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, blank=True)
    reason = models.JSONField(default=dict)
    """Why it ended: {"code", …numbers}."""

    network = models.CharField(max_length=20)
    """The verdict's code."""
    fabric = models.CharField(max_length=63, blank=True)
    shape = models.JSONField(default=dict)
    leader_address = models.CharField(max_length=64)
    master_port = models.PositiveIntegerField()
    pass_no = models.BigIntegerField()

    placed_at = models.DateTimeField()
    opened_at = models.DateTimeField(null=True)
    time_limit_at = models.DateTimeField(null=True)
    running_at = models.DateTimeField(null=True)
    ending_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint("run", "number", name="attempt_number_unique"),
            models.UniqueConstraint(
                "run", name="one_attempt_at_a_time", condition=~Q(state=AttemptState.ENDED)
            ),
            models.CheckConstraint(condition=Q(state__in=AttemptState.values), name="attempt_state_known"),
        )

    def __str__(self) -> str:
        return f"{self.run.name} attempt {self.number}"


class Worker(models.Model):
    """A rank of the run. It exists, unplaced, from submission on; each attempt gives it an assignment."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="workers")
    rank = models.PositiveIntegerField()
    active = models.BooleanField(default=True)
    """False: an earlier attempt had a shape with this worker, the present one has not."""
    group = models.CharField(max_length=52, blank=True)
    group_rank = models.PositiveIntegerField()
    name = models.CharField(max_length=63)
    state = models.CharField(max_length=10, choices=WorkerState.choices, default=WorkerState.PENDING)
    reason = models.JSONField(default=dict)

    class Meta:
        ordering = ("run_id", "rank")
        constraints = (
            models.UniqueConstraint("run", "name", name="worker_name_unique"),
            models.UniqueConstraint("run", "rank", name="worker_rank_unique", condition=Q(active=True)),
            models.CheckConstraint(condition=Q(state__in=WorkerState.values), name="worker_state_known"),
        )

    def __str__(self) -> str:
        return self.name


class AssignmentQuerySet(models.QuerySet["Assignment"]):
    def held(self) -> "AssignmentQuerySet":
        """Those whose process tree may still be there."""
        return self.filter(gone_at=None)


class Assignment(models.Model):
    """A worker of an attempt on a machine. Its id is what the agent names its container or sandbox after."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    attempt = models.ForeignKey(RunAttempt, models.CASCADE, related_name="assignments")
    worker = models.ForeignKey(Worker, models.CASCADE, related_name="assignments")
    machine = models.ForeignKey(Machine, models.PROTECT, related_name="assignments")
    state = models.CharField(max_length=10, choices=WorkerState.choices, default=WorkerState.PLACED)
    phase = models.CharField(max_length=7, choices=Phase.choices, default=Phase.PREPARE)
    revision = models.BigIntegerField()
    """The machine's desired revision that brought it: an agent that applied less can't know it yet."""
    launch = models.JSONField()
    """What the agent gets (wire.agent_messages.Assignment), less phase and files: fixed at placement."""
    detail = models.CharField(max_length=300, blank=True)
    exit = models.JSONField(null=True)
    """As reported (wire.agent_messages.Exit)."""

    placed_at = models.DateTimeField()
    ready_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    gone_at = models.DateTimeField(null=True)
    """When the agent reported the process tree gone: only then its allocations end."""
    log_size = models.BigIntegerField(default=0)
    """Bytes stored: the offset expected next."""
    log_final = models.BigIntegerField(null=True)
    """Bytes that the worker wrote in all, once known."""

    objects = AssignmentQuerySet.as_manager()

    class Meta:
        ordering = ("attempt_id", "worker__rank")
        constraints = (
            models.UniqueConstraint("attempt", "worker", name="one_assignment_per_attempt"),
            models.CheckConstraint(
                condition=Q(state__in=sorted(ASSIGNMENT_STATES)), name="assignment_state_known"
            ),
            models.CheckConstraint(condition=Q(phase__in=Phase.values), name="assignment_phase_known"),
        )
        indexes = (models.Index("machine", name="assignment_held", condition=Q(gone_at=None)),)

    def __str__(self) -> str:
        return f"{self.worker.name} on {self.machine.name}"


class Allocation(models.Model):
    """One GPU, or the cores and memory of a worker, or a leader's rendezvous port: held until released."""

    assignment = models.ForeignKey(Assignment, models.CASCADE, related_name="allocations")
    machine = models.ForeignKey(Machine, models.PROTECT, related_name="allocations")
    gpu = models.ForeignKey(Gpu, models.PROTECT, null=True, related_name="allocations")
    cpu_cores = models.FloatField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    port = models.PositiveIntegerField(null=True)
    created_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                "gpu", name="gpu_held_once", condition=Q(released_at=None, gpu__isnull=False)
            ),
            models.UniqueConstraint(
                "machine", "port", name="port_held_once", condition=Q(released_at=None, port__isnull=False)
            ),
        )
        indexes = (models.Index("machine", name="allocation_active", condition=Q(released_at=None)),)

    def __str__(self) -> str:
        return f"{self.assignment_id} on {self.machine_id}"


class RunEvent(models.Model):
    run = models.ForeignKey(Run, models.CASCADE, related_name="events")
    at = models.DateTimeField()
    attempt_no = models.PositiveIntegerField()
    state = models.CharField(max_length=10)
    reason = models.JSONField(default=dict)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.run_id} {self.state}"


class WorkerEvent(models.Model):
    worker = models.ForeignKey(Worker, models.CASCADE, related_name="events")
    assignment = models.ForeignKey(Assignment, models.CASCADE, null=True, related_name="events")
    at = models.DateTimeField()
    attempt_no = models.PositiveIntegerField()
    state = models.CharField(max_length=10)
    reason = models.JSONField(default=dict)
    note_number = models.PositiveIntegerField(null=True)
    """Of a note from the agent: makes a repeated report harmless."""

    class Meta:
        ordering = ("id",)
        constraints = (models.UniqueConstraint("assignment", "note_number", name="worker_note_once"),)

    def __str__(self) -> str:
        return f"{self.worker_id} {self.state}"


class LogChunk(models.Model):
    """A piece of a worker's log. `data` is stored uncompressed (STORAGE EXTERNAL): five times the throughput."""

    assignment = models.ForeignKey(Assignment, models.CASCADE, related_name="log_chunks")
    offset = models.BigIntegerField()
    size = models.PositiveIntegerField()
    at = models.DateTimeField()
    data = models.BinaryField()

    class Meta:
        ordering = ("assignment_id", "offset")
        constraints = (models.UniqueConstraint("assignment", "offset", name="log_chunk_once"),)

    def __str__(self) -> str:
        return f"{self.assignment_id} at {self.offset}"
