"""Machines by what one sees of them."""

from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet

from machines.models import Cluster, Gpu, Machine, MachineLabel, RdmaPort
from machines.states import FABRIC_LABEL, LinkLayer, MachineState

_LOST = Q(unreachable_at__isnull=False) | Q(last_seen_at=None)
_HEARD = Q(quarantined_at=None, two_agents_at=None) & ~_LOST
STATES: dict[MachineState, Q] = {
    MachineState.QUARANTINED: Q(quarantined_at__isnull=False),
    MachineState.UNREACHABLE: Q(quarantined_at=None) & _LOST,
    MachineState.CONTESTED: Q(quarantined_at=None, two_agents_at__isnull=False) & ~_LOST,
    MachineState.DRAINING: _HEARD & Q(draining_at__isnull=False),
    MachineState.CORDONED: _HEARD & Q(draining_at=None, cordoned_at__isnull=False),
    MachineState.READY: _HEARD & Q(draining_at=None, cordoned_at=None),
}
"""Each state of `Machine.state` as a condition of the database."""


def machines_labelled(machines: QuerySet[Machine], key: str, value: str) -> QuerySet[Machine]:
    """Those whose label `key` has this value; one that a person set hides one that was found."""
    here = MachineLabel.objects.filter(machine=OuterRef("pk"), key=key)
    said = here.filter(found=False)
    reported = Exists(here.filter(found=True, value=value)) & ~Exists(said)
    return machines.filter(Exists(said.filter(value=value)) | reported)


def machines_unlabelled(machines: QuerySet[Machine], key: str) -> QuerySet[Machine]:
    """Those without a value for the label `key`: nobody set one, or it was emptied, and none was found."""
    here = MachineLabel.objects.filter(machine=OuterRef("pk"), key=key)
    said = here.filter(found=False)
    found = Exists(here.filter(found=True).exclude(value="")) & ~Exists(said)
    return machines.exclude(Exists(said.exclude(value="")) | found)


def machines_on_fabric(machines: QuerySet[Machine], name: str) -> QuerySet[Machine]:
    """Those with an InfiniBand port on the fabric; a label names the fabric of all such ports of its machine."""
    ports = RdmaPort.objects.filter(machine=OuterRef("pk"), link_layer=LinkLayer.INFINIBAND)
    labelled = machines_labelled(machines, FABRIC_LABEL, name).values("pk")
    bare = machines_unlabelled(machines, FABRIC_LABEL).filter(Exists(ports.filter(fabric__name=name)))
    return machines.filter(Q(pk__in=labelled) | Q(pk__in=bare.values("pk")))


def machines_with_model(machines: QuerySet[Machine], model: str) -> QuerySet[Machine]:
    """Those with at least one GPU of this model."""
    return machines.filter(Exists(Gpu.objects.filter(machine=OuterRef("pk"), present=True, model=model)))


# From one model to the next, and of each to the first machine here, by the index: a DISTINCT or a join would read
# every GPU of every cluster.
_MODELS = """
WITH RECURSIVE known(model) AS (
    (SELECT model FROM machines_gpu WHERE present ORDER BY model LIMIT 1)
    UNION ALL
    SELECT (SELECT g.model FROM machines_gpu g WHERE g.present AND g.model > known.model ORDER BY g.model LIMIT 1)
    FROM known WHERE known.model IS NOT NULL
)
SELECT model FROM known CROSS JOIN LATERAL (
    SELECT FROM machines_gpu g
    WHERE g.present AND g.model = known.model AND (
        SELECT m.cluster_id = %s AND m.removed_at IS NULL FROM machines_machine m WHERE m.id = g.machine_id
    )
    ORDER BY g.machine_id LIMIT 1
) there
ORDER BY model
"""


def models_there(cluster: Cluster) -> list[str]:
    """The GPU models that the cluster's machines have, each once, sorted."""
    with connection.cursor() as cursor:
        cursor.execute(_MODELS, [cluster.id])
        return [model for (model,) in cursor.fetchall()]
