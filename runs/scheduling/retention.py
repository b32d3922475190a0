"""How long records of passes are kept: an age, a number for each run, a size for each cluster. Swept hourly."""

from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import BigIntegerField, Exists, F, Func, OuterRef, QuerySet, Sum, Window
from django.db.models.functions import RowNumber

from common.clock import database_now
from machines.models import Cluster
from runs.models import DecisionRecord, PassRecord, Run, TopologyRecord

MIB = 1 << 20


def records_sweep() -> None:
    """Enforces all bounds. What a run that waits was last judged by stays, but for the size's sake."""
    _decisions_too_old()
    _decisions_too_many()
    for cluster in Cluster.objects.values_list("id", flat=True):
        _cluster_sweep(cluster)


def _decisions_too_old() -> None:
    limit = database_now() - timedelta(days=settings.RECORDS_DAYS)
    DecisionRecord.objects.filter(at__lt=limit).delete()


def _decisions_too_many() -> None:
    """The oldest of runs that have more than their number."""
    newer = Window(RowNumber(), partition_by="run", order_by="-id")
    ranked = (
        DecisionRecord.objects.order_by().annotate(number=newer).filter(number__gt=settings.RECORDS_PER_RUN)
    )
    DecisionRecord.objects.filter(id__in=list(ranked.values_list("id", flat=True))).delete()


@transaction.atomic
def _cluster_sweep(cluster_id: int) -> None:
    # Passes lock the same row while they write: none reuses what goes away here.
    Cluster.objects.select_for_update(no_key=True).get(id=cluster_id)
    records = PassRecord.objects.filter(cluster=cluster_id)
    newest = records.order_by("-id").values_list("id", flat=True).first()
    older = records.filter(id__lt=newest or 0)
    judged = Run.objects.waiting().filter(cluster=cluster_id, judged__isnull=False)
    in_use = list(judged.values_list("judged__record", flat=True).distinct())
    kept = DecisionRecord.objects.filter(record=OuterRef("id"))
    older.filter(~Exists(kept)).exclude(id__in=in_use).delete()
    older.filter(id__in=_beyond_size(records)).delete()
    named = PassRecord.objects.filter(topology=OuterRef("id"))
    TopologyRecord.objects.filter(~Exists(named), cluster=cluster_id).delete()


def _beyond_size(records: QuerySet[PassRecord]) -> list[int]:
    """Ids of the oldest records, which are over the size when the newer ones are counted first."""
    so_far = Window(Sum(_stored("state") + _stored("steps")), order_by=F("id").desc())
    sizes = records.annotate(so_far=so_far)
    return list(sizes.filter(so_far__gt=settings.RECORDS_MIB * MIB).values_list("id", flat=True))


def _stored(column: str) -> Func:
    """Bytes that the column takes in its row; nothing is read or unpacked for it."""
    return Func(F(column), function="pg_column_size", output_field=BigIntegerField())
