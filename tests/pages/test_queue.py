"""The queue: a workspace's waiting runs in the pass's order, what is kept for them, and what the live part brings."""

import pytest

from console.pages import queue
from machines.models import WorkspacePool
from runs.models import Reservation, Run
from runs.scheduling.passes import cluster_pass
from tenancy.models import Workspace
from tests import factories as make

QUEUE = "/o/acme/w/vision/jobs/queue"


def alone(name, *, gpus=8, priority=0, limit=None):
    """A run on one machine."""
    document = make.document_make(name, gpus=gpus, machines=1, priority=priority)
    if limit:
        document["spec"]["task_template"]["time_limit_seconds"] = limit
    return document


@pytest.fixture
def waiting(house):
    """Two machines: eval-3 holds one for an hour, ddp-resnet50 needs both, tune-9 would fit but comes later."""
    machines = [make.machine_make(house, f"gpu-0{number}") for number in (1, 2)]
    holder = make.run_pending(house, "eval-3", document=alone("eval-3", limit=3600))
    make.run_start(make.run_place(house, holder, machines[1:]))
    make.run_pending(house)
    make.run_pending(house, "tune-9", document=alone("tune-9"))
    huge = make.document_make("huge", gpus=64, machines=8)
    make.run_pending(house, "huge", document=huge)
    cluster_pass(house.cluster.id)
    return house


def told(client, query=""):
    rows = client.get(f"{QUEUE}{query}").context["page"].rows
    return [(each.position, each.row.run.name, each.kind) for each in rows]


def test_runs_stand_in_the_order_of_the_pass_with_their_kind_of_cause(waiting, bea):
    assert told(bea) == [(1, "ddp-resnet50", "fit"), (2, "tune-9", "order"), (3, "huge", "never")]
    page = bea.get(QUEUE).content.decode()
    for words in ("No. 1", "Never possible", "Order", "Fit", "ddp-resnet50 goes first and keeps machines"):
        assert words in page
    assert 'aria-current="true">Queue 3</a>' in page


def test_what_is_kept_for_a_run_is_told_with_its_moment(waiting, bea):
    [ddp, tune, _] = bea.get(QUEUE).context["page"].rows
    assert ddp.kept.machines == "gpu-01, gpu-02"
    assert ddp.kept.reservation.starts_at is not None
    assert tune.kept is None
    assert "at the latest <time" in bea.get(QUEUE).content.decode()
    Reservation.objects.update(starts_at=None)
    assert "kept: gpu-01, gpu-02; a run there has no time limit" in bea.get(QUEUE).content.decode()


def test_machines_of_a_large_reservation_are_counted(waiting, bea):
    machines = [make.machine_make(waiting, f"more-{number}").id for number in range(5)]
    Reservation.objects.update(machines=[*machines, 999_999])
    [ddp, *_] = bea.get(QUEUE).context["page"].rows
    assert ddp.kept.machines == "more-0, more-1, more-2, more-3 and 2 machines more"


def test_other_workspaces_runs_count_and_are_not_shown(waiting, bea):
    other = Workspace.objects.create(organization=waiting.organization, slug="speech", name="Speech")
    WorkspacePool.objects.create(workspace=other, pool=waiting.pool)
    first = make.run_pending(waiting, "theirs", by=waiting.ana, document=alone("theirs"))
    Run.objects.filter(id=first.id).update(workspace=other, priority=500)
    cluster_pass(waiting.cluster.id)
    assert [position for position, _, _ in told(bea)] == [1, 2, 3]  # theirs was placed: it fits on gpu-01
    Run.objects.filter(id=first.id).update(state="Pending", queue_position=1)
    assert "theirs" not in bea.get(QUEUE).content.decode()


def test_a_run_that_no_pass_has_seen_comes_last(waiting, bea):
    make.run_pending(waiting, "newcomer", document=alone("newcomer", priority=50))
    assert told(bea)[-1] == (None, "newcomer", "")
    assert "Next pass" in bea.get(QUEUE).content.decode()


def test_the_queue_comes_in_pages(waiting, bea, monkeypatch):
    monkeypatch.setattr(queue, "PAGE_SIZE", 2)
    assert [name for _, name, _ in told(bea)] == ["ddp-resnet50", "tune-9"]
    assert [name for _, name, _ in told(bea, "?page=2")] == ["huge"]
    assert "1–2 of 3" in bea.get(QUEUE).content.decode()
    assert "3–3 of 3" in bea.get(f"{QUEUE}?page=2").content.decode()
    assert [name for _, name, _ in told(bea, "?page=-1")] == ["ddp-resnet50", "tune-9"]
    assert told(bea, f"?page={'9' * 30}") == told(bea)


def test_the_live_part_brings_the_rows_and_says_when_the_order_is_another(waiting, bea):
    shown = bea.get(QUEUE).context["page"].shown
    live = {"headers": {"HX-Request": "true"}}
    same = bea.get(QUEUE, {"shown": shown}, **live).content.decode()
    assert f'id="position-{shown.split(",")[0]}" hx-swap-oob="true"' in same
    assert "The order has changed" not in same
    assert "<html" not in same
    Run.objects.filter(name="tune-9").update(queue_position=9)
    assert "The order has changed. Show" in bea.get(QUEUE, {"shown": shown}, **live).content.decode()


def test_nothing_waits(house, bea, cyd):
    assert "Nothing waits." in bea.get(QUEUE).content.decode()
    assert cyd.get(QUEUE).status_code == 404


def test_queries_do_not_grow_with_the_queue(waiting, bea, django_assert_num_queries):
    bea.get(QUEUE)
    with django_assert_num_queries(10):
        bea.get(QUEUE)
    for number in range(10):
        make.run_pending(waiting, f"more-{number}", document=alone(f"more-{number}"))
    with django_assert_num_queries(10):
        bea.get(QUEUE)
