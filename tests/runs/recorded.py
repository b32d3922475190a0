"""Records of passes that are written by hand, without a pass."""

from django.utils import timezone

from machines.models import Cluster
from placement import Placement, Refusal, Request, place
from runs.models import Run
from runs.scheduling.records import Recorder, record_open
from runs.scheduling.request import Lemons, pools_allowed, request_of
from runs.scheduling.snapshot import cluster_load
from tests.factories import House
from wire.spec import validate_document


def asked(run: Run) -> Request:
    return request_of(
        run, validate_document(run.document), pools_allowed(run.workspace_id, run.cluster_id), Lemons()
    )


def opened(house: House, *, pass_no: int = 18205) -> Recorder:
    Cluster.objects.filter(id=house.cluster.id).update(pass_no=pass_no)
    cluster = Cluster.objects.get(id=house.cluster.id)
    return record_open(cluster, cluster_load(cluster).snapshot, timezone.now())


def one_pass(house: House, placed: Run, refused: Run) -> tuple[Refusal, int]:
    """A pass that places the one and then refuses the other; the refused one's answer and the record's id."""
    snapshot = cluster_load(house.cluster).snapshot
    record = opened(house)
    placement = place(snapshot, asked(placed))
    assert isinstance(placement, Placement)
    record.decision(placed.id, asked(placed), placement, placed=True)
    record.step_take(placement)
    refusal = place(snapshot.take(placement), asked(refused))
    assert isinstance(refusal, Refusal)
    record.decision(refused.id, asked(refused), refusal, placed=False)
    return refusal, record.close()
