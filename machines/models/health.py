"""What became better or worse on machines, and what administrators say of it."""

from django.db import models
from django.db.models import Q

from machines.models.core import Machine
from machines.states import Health


class HealthEvent(models.Model):
    """A GPU, a port or the machine itself became better or worse, as its agent reported or a person said. Kept for
    half a year."""

    machine = models.ForeignKey(Machine, models.CASCADE, related_name="health_events", db_index=False)
    event_id = models.CharField(max_length=40)
    """The agent's: it reports an event more than once. Of a person's: one that no agent makes."""
    by = models.CharField(max_length=200, blank=True)
    """Who said so; empty: its agent."""
    at = models.DateTimeField()
    """By the console's clock."""
    subject = models.CharField(max_length=100)
    """As wire.machine_facts.HealthEvent has it."""
    name = models.CharField(max_length=100)
    was = models.CharField(max_length=8, choices=Health.choices)
    health = models.CharField(max_length=8, choices=Health.choices)
    evidence = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ("-at", "-id")
        constraints = (
            models.UniqueConstraint("machine", "event_id", name="health_event_once"),
            models.CheckConstraint(
                condition=Q(was__in=Health.values, health__in=Health.values), name="health_event_known"
            ),
        )
        indexes = (
            models.Index("machine", "at", name="health_event_of_machine"),
            models.Index("at", name="health_event_age"),
        )

    def __str__(self) -> str:
        return f"{self.machine} {self.name}: {self.health}"


class HealthOverride(models.Model):
    """What an administrator says of a GPU's, a port's or a machine's health, for a while, whatever its agent says."""

    machine = models.ForeignKey(Machine, models.CASCADE, related_name="health_overrides", db_index=False)
    subject = models.CharField(max_length=100)
    """As wire.machine_facts.HealthEvent has it: "machine", "gpu <UUID>" or "port <device>:<port>"."""
    health = models.CharField(max_length=8, choices=Health.choices)
    reason = models.CharField(max_length=200)
    set_by = models.CharField(max_length=200)
    set_at = models.DateTimeField()
    until = models.DateTimeField()

    class Meta:
        ordering = ("machine_id", "subject")
        constraints = (
            models.UniqueConstraint("machine", "subject", name="health_override_once"),
            models.CheckConstraint(condition=Q(health__in=Health.values), name="health_override_known"),
        )
        indexes = (models.Index("until", name="health_override_until"),)

    def __str__(self) -> str:
        return f"{self.machine} {self.subject}: {self.health}"
