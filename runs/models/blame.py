"""Which machines attempts failed on."""

from django.db import models
from django.db.models import Q

from machines.models import Machine
from runs.models.run import Run
from runs.states import Fault
from tenancy.models import Workspace


class MachineFailure(models.Model):
    """Attempts of a run ended by what happened on a machine. One row for all failures of one kind: a run that fails
    again and again says no more of its machine than one that fails once (runs/lemons.py)."""

    machine = models.ForeignKey(Machine, models.CASCADE, related_name="failures", db_index=False)
    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="+")
    run = models.ForeignKey(Run, models.SET_NULL, null=True, related_name="+")
    """None: it has been deleted since; what it met stays told."""
    run_name = models.CharField(max_length=63)
    kind = models.CharField(max_length=12, choices=Fault.choices)
    times = models.PositiveIntegerField(default=1)
    at = models.DateTimeField()
    """The last time."""
    text = models.CharField(max_length=500)
    """What was said of it then."""

    class Meta:
        ordering = ("-at", "-id")
        constraints = (
            models.UniqueConstraint("machine", "run", "kind", name="machine_failure_once"),
            models.CheckConstraint(condition=Q(kind__in=Fault.values), name="machine_failure_known"),
        )
        indexes = (models.Index("at", name="machine_failure_age"),)

    def __str__(self) -> str:
        return f"{self.machine}: {self.run_name} {self.kind}"
