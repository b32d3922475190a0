"""Over how many machines a run is planned before a pass has looked at it."""

from django.db.models import Count, Max

from machines.models import Cluster, Gpu
from wire.spec import Group, RunDocument, Shape


def planned_shapes(document: RunDocument, cluster: Cluster) -> tuple[Shape, ...]:
    """Of each group: the fewest machines that the document allows, until a pass chooses.

    Workers that start on their own are counted once and for all, so that a group's GPUs are divided as far as a machine
    of this cluster needs it.
    """
    if document.spec.start == "Independent":
        largest = _largest(cluster)
        return tuple(_small_enough(group, largest) for group in document.groups())
    return tuple(group.template.shapes()[0] for group in document.groups())


def _small_enough(group: Group, largest: int) -> Shape:
    shapes = group.template.shapes()
    return next((shape for shape in shapes if shape.gpus_per_machine <= largest), shapes[0])


def _largest(cluster: Cluster) -> int:
    """GPUs of the machine that has most."""
    machines = Gpu.objects.filter(machine__cluster=cluster, present=True).order_by().values("machine")
    return machines.annotate(gpus=Count("id")).aggregate(most=Max("gpus"))["most"] or 0
