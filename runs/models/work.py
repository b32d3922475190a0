"""Attempts, workers, what they hold and what they wrote."""

import uuid

from django.db import models
from django.db.models import Q

from machines.models import Gpu, Machine
from runs.models.run import Run
from runs.states import ASSIGNMENT_STATES, AttemptState, Outcome, Phase, WorkerState


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
        indexes = (models.Index("name", name="worker_by_name"),)

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
    """What the agent gets (wire.assignments.Assignment), less phase and files: fixed at placement."""
    detail = models.CharField(max_length=300, blank=True)
    exit = models.JSONField(null=True)
    """As reported (wire.agent_messages.Exit)."""

    placed_at = models.DateTimeField()
    checkable_at = models.DateTimeField(null=True)
    """Since when only the check that the members run together is left before it is ready."""
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
        indexes = (
            # With the attempt: who holds something is asked for every explanation, and answered by the index alone.
            models.Index("machine", name="assignment_held", condition=Q(gone_at=None), include=("attempt",)),
        )

    def __str__(self) -> str:
        return f"{self.worker.name} on {self.machine.name}"


class Allocation(models.Model):
    """One GPU, or the cores and memory of a worker with its address on the mesh and, of a leader, the rendezvous port:
    held until released."""

    assignment = models.ForeignKey(Assignment, models.CASCADE, related_name="allocations")
    machine = models.ForeignKey(Machine, models.PROTECT, related_name="allocations")
    gpu = models.ForeignKey(Gpu, models.PROTECT, null=True, related_name="allocations")
    cpu_cores = models.FloatField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    port = models.PositiveIntegerField(null=True)
    mesh_address = models.GenericIPAddressField(protocol="IPv4", null=True)
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
            models.UniqueConstraint(
                "machine",
                "mesh_address",
                name="mesh_address_held_once",
                condition=Q(released_at=None, mesh_address__isnull=False),
            ),
        )
        indexes = (
            models.Index("machine", name="allocation_active", condition=Q(released_at=None)),
            models.Index("released_at", name="allocation_released"),
        )

    def __str__(self) -> str:
        return f"{self.assignment_id} on {self.machine_id}"


class DriveExport(models.Model):
    """A machine exports a drive to an assignment's machine, until that assignment is gone."""

    assignment = models.ForeignKey(Assignment, models.CASCADE, related_name="exports")
    machine = models.ForeignKey(Machine, models.PROTECT, related_name="exports")
    """The one that has the drive."""
    drive = models.CharField(max_length=63)
    path = models.CharField(max_length=4095)
    read_only = models.BooleanField()

    def __str__(self) -> str:
        return f"{self.drive} of {self.machine_id} for {self.assignment_id}"


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
    lines = models.PositiveIntegerField(default=0)
    """Line ends in `data`."""
    data = models.BinaryField()

    class Meta:
        ordering = ("assignment_id", "offset")
        constraints = (models.UniqueConstraint("assignment", "offset", name="log_chunk_once"),)

    def __str__(self) -> str:
        return f"{self.assignment_id} at {self.offset}"
