"""Runs, their names and their history."""

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q

from machines.models import Cluster
from runs.states import RUN_ENDED, RunState, WaitKind, Wanted
from tenancy.models import User, Workspace


class RunQuerySet(models.QuerySet["Run"]):
    def waiting(self) -> "RunQuerySet":
        """Those that passes place: of an independent run its children, and never itself."""
        return self.filter(state=RunState.PENDING, wanted=Wanted.RUN, independent=False)

    def live(self) -> "RunQuerySet":
        return self.exclude(state__in=RUN_ENDED)

    def of(self, workspace: Workspace) -> "RunQuerySet":
        """The workspace's runs as people see them: without the children of independent ones."""
        return self.filter(workspace=workspace, parent=None)

    def family(self, run_id: int) -> "RunQuerySet":
        """The run itself and its children.

        What belongs to them is asked for by `run__in=`: with an OR over a join, PostgreSQL reads every run there is.
        """
        return self.filter(Q(id=run_id) | Q(parent=run_id))


class Run(models.Model):
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="runs")
    cluster = models.ForeignKey(Cluster, models.PROTECT, related_name="runs")
    name = models.CharField(max_length=52)
    """A child has its parent's: people see one run."""
    independent = models.BooleanField(default=False)
    """Its workers start on their own: each is a run of its own, a child, and this one only gathers them."""
    parent = models.ForeignKey("self", models.CASCADE, null=True, related_name="children")
    """The independent run whose single worker this is; its rank there is the worker's rank."""
    labels = models.JSONField(default=dict)
    document = models.JSONField()
    """The run document with its defaults filled in."""
    edition = models.PositiveIntegerField(default=0)
    """Rises whenever the document is edited: what a pass has read of it is good for one edition."""
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

    preemption = models.JSONField(null=True)
    """The reason to stop its attempt in favour of another run; it goes back to the queue uncounted."""

    explanation = models.JSONField(null=True)
    """What the last pass that refused it says in one sentence: codes and numbers (`Refusal.as_headline`)."""
    wait_kind = models.CharField(max_length=6, choices=WaitKind.choices, blank=True)
    queue_position = models.PositiveIntegerField(null=True)
    """Its place in the order of the last pass, from 1."""
    judged = models.JSONField(null=True)
    """What that pass had in mind for this run: {"record", "step", "over_cap", "guaranteed", "behind", "claimed",
    "occupied", "kept"}. With it the judgement can be had again from the record (runs/scheduling/records.py)."""
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
            models.UniqueConstraint("workspace", "name", name="run_name_unique", condition=Q(parent=None)),
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
            # The list of runs: newest first, of one state or owner; a search for a name reads this index alone.
            models.Index(
                "workspace",
                F("id").desc(),
                name="run_by_workspace",
                include=("name",),
                condition=Q(parent=None),
            ),
            models.Index("workspace", "state", F("id").desc(), name="run_by_state", condition=Q(parent=None)),
            models.Index(
                "workspace", "created_by", F("id").desc(), name="run_by_owner", condition=Q(parent=None)
            ),
            GinIndex("labels", name="run_by_label"),
            models.Index("state", name="run_live", condition=~Q(state__in=sorted(RUN_ENDED))),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def stoppable(self) -> bool:
        """Whether a stop would do anything; who may do it is another matter."""
        return self.wanted == Wanted.RUN and self.state not in RUN_ENDED

    @property
    def shown_id(self) -> int:
        """Of the run that people see."""
        return self.parent_id or self.id


class WorkloadName(models.Model):
    """Runs and workers share one namespace in a workspace: a run `a-1` and worker 1 of `a` would clash."""

    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="+")
    name = models.CharField(max_length=63)
    run = models.ForeignKey(Run, models.CASCADE, related_name="names")

    class Meta:
        constraints = (models.UniqueConstraint("workspace", "name", name="workload_name_unique"),)

    def __str__(self) -> str:
        return self.name


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
