"""What workers tell of their training: numbers over steps."""

from django.db import models

from runs.models.work import Assignment


class MetricSample(models.Model):
    """One number at one step, as a worker wrote it into its log. `value` may be NaN or infinite."""

    assignment = models.ForeignKey(Assignment, models.CASCADE, related_name="metrics", db_index=False)
    name = models.CharField(max_length=64)
    step = models.BigIntegerField()
    value = models.FloatField()

    class Meta:
        constraints = (models.UniqueConstraint("assignment", "name", "step", name="metric_sample_once"),)

    def __str__(self) -> str:
        return f"{self.name}={self.value} step={self.step}"


class MetricRest(models.Model):
    """The beginning of a line that may become a metric: its end comes with the next piece of the log."""

    assignment = models.OneToOneField(Assignment, models.CASCADE, related_name="+")
    data = models.BinaryField()

    def __str__(self) -> str:
        return f"rest of {self.assignment_id}"
