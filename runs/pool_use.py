"""What there is in the pools of a cluster: machines, and GPUs that a run could be given."""

from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from machines.models import Cluster, Gpu, Machine
from machines.states import Health
from runs.models import Allocation


@dataclass(frozen=True, slots=True)
class PoolSize:
    machines: int = 0
    gpus_total: int = 0
    gpus_free: int = 0
    """Held by nothing, and not faulty."""


def pool_sizes(cluster: Cluster) -> dict[int, PoolSize]:
    """By pool; one without machines is left out."""
    machines = Machine.objects.filter(cluster=cluster)
    counted = dict(machines.order_by().values_list("pool").annotate(Count("id")))
    present = Gpu.objects.filter(machine__cluster=cluster, machine__removed_at=None, present=True)
    total, free = _by_pool(present), _by_pool(present.exclude(_unfree()))
    return {
        pool: PoolSize(count, total.get(pool, 0), free.get(pool, 0))
        for pool, count in counted.items()
        if pool is not None
    }


def _by_pool(gpus: QuerySet[Gpu]) -> dict[int | None, int]:
    return dict(gpus.order_by().values_list("machine__pool").annotate(Count("id")))


def _unfree() -> Q:
    held = Allocation.objects.filter(released_at=None, gpu__isnull=False).values("gpu")
    return Q(id__in=held) | Q(health=Health.FAULTY)
