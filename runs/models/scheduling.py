"""What passes keep: reservations, claims, why runs waited, and records from which a judgement can be had again."""

from django.db import models
from django.db.models import Q

from machines.models import Cluster, Gpu, Machine
from runs.models.run import Run
from runs.states import WaitKind
from tenancy.models import Workspace


class Claim(models.Model):
    """What a preemption frees for the run that asked for it: closed to others until that run is placed or gone."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="claims")
    machine = models.ForeignKey(Machine, models.CASCADE, related_name="claims")
    gpu = models.ForeignKey(Gpu, models.CASCADE, null=True, related_name="claims")
    cpu_cores = models.FloatField(default=0)
    memory_bytes = models.BigIntegerField(default=0)

    class Meta:
        constraints = (
            models.UniqueConstraint("gpu", name="gpu_claimed_once", condition=Q(gpu__isnull=False)),
        )

    def __str__(self) -> str:
        return f"{self.run_id} claims on {self.machine_id}"


class Reservation(models.Model):
    """Machines kept for a run that can't start yet, so that later ones never starve it. Made anew by each pass."""

    run = models.OneToOneField(Run, models.CASCADE, related_name="reservation")
    cluster = models.ForeignKey(Cluster, models.CASCADE, related_name="reservations")
    machines = models.JSONField()
    """Machine ids."""
    starts_at = models.DateTimeField(null=True)
    """At the latest; None: a holder has no time limit."""
    waits_for = models.JSONField(default=list)
    """Ids of the runs that hold something there."""
    pass_no = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.run_id} on {len(self.machines)} machines"


class RunWait(models.Model):
    """A stretch of a run's wait with one cause: its history."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="waits")
    kind = models.CharField(max_length=6, choices=WaitKind.choices)
    cause = models.CharField(max_length=40)
    headline = models.JSONField()
    """As first seen; codes and numbers."""
    since = models.DateTimeField()
    until = models.DateTimeField(null=True)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint("run", name="one_cause_at_a_time", condition=Q(until=None)),
            models.CheckConstraint(condition=Q(kind__in=WaitKind.values), name="wait_kind_known"),
        )

    def __str__(self) -> str:
        return f"{self.run_id} {self.cause}"


class WorkspaceUsage(models.Model):
    """GPU-seconds that a workspace has used of a cluster, halved every seven days: fair share."""

    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="+")
    cluster = models.ForeignKey(Cluster, models.CASCADE, related_name="+")
    gpu_seconds = models.FloatField(default=0)
    at = models.DateTimeField()
    """Charged up to here."""

    class Meta:
        constraints = (models.UniqueConstraint("workspace", "cluster", name="one_usage_per_cluster"),)

    def __str__(self) -> str:
        return f"{self.workspace_id} on {self.cluster_id}"


class TopologyRecord(models.Model):
    """What of a cluster rarely changes, as a pass saw it; shared by all records with the same digest."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, related_name="+")
    digest = models.CharField(max_length=64)
    data = models.BinaryField()

    class Meta:
        constraints = (models.UniqueConstraint("cluster", "digest", name="topology_record_once"),)

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.digest[:12]}"


class PassRecord(models.Model):
    """What one pass saw and did, so that any of its judgements can be had again. Kept while something refers to it."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, related_name="+")
    topology = models.ForeignKey(TopologyRecord, models.PROTECT, related_name="+")
    pass_no = models.BigIntegerField()
    at = models.DateTimeField()
    state = models.BinaryField()
    """The snapshot's changing arrays, compressed (`placement.record`)."""
    steps = models.JSONField(default=list)
    """In order: {"take": ranks} for what it placed, {"reserve": {...}} for what it reserved."""

    class Meta:
        constraints = (models.UniqueConstraint("cluster", "pass_no", name="pass_record_once"),)
        indexes = (models.Index("at", name="pass_record_age"),)

    def __str__(self) -> str:
        return f"{self.cluster_id} pass {self.pass_no}"


class DecisionRecord(models.Model):
    """One judgement of one run: a placement, or a refusal with a cause that was new. It can be replayed."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="decisions")
    record = models.ForeignKey(PassRecord, models.CASCADE, related_name="decisions")
    at = models.DateTimeField()
    placed = models.BooleanField()
    step = models.PositiveIntegerField()
    """Steps of the pass that came before."""
    request = models.JSONField()
    """`placement.record.request_data`."""
    digest = models.CharField(max_length=64)
    """SHA-256 of the answer's canonical JSON: a replay must give the same."""

    class Meta:
        ordering = ("id",)
        indexes = (models.Index("run", "at", name="decision_by_run"), models.Index("at", name="decision_age"))

    def __str__(self) -> str:
        return f"{self.run_id} at {self.at}"
