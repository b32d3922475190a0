"""Agents that have spoken for a machine."""

from django.db import models

from machines.models.core import Machine


class ReplacedAgent(models.Model):
    """An agent (one start of one) that another has replaced on its machine's credential. Dead, if all is well.

    Rows are removed an hour later, but for the newest of a machine (machines/channel.py).
    """

    machine = models.ForeignKey(Machine, models.CASCADE, related_name="replaced_agents", db_index=False)
    instance = models.CharField(max_length=64)
    at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint("machine", "instance", name="agent_replaced_once"),)

    def __str__(self) -> str:
        return f"{self.instance} of {self.machine}"
