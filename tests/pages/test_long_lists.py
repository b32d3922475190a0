"""Lists of ten thousand: every page of one is small, next and previous keep the filters, and its end is told."""

import re
from html import unescape

import pytest
from django.db import connection
from django.utils import timezone

from machines.models import Gpu, Machine, MachineLabel
from machines.states import RACK_LABEL
from runs.models import Run, RunEvent
from runs.scheduling.passes import cluster_pass
from runs.states import WaitKind
from tests import factories as make

pytestmark = pytest.mark.django_db

MANY = 10_000
W = "/o/acme/w/vision"
M = "/o/acme/clusters/main/machines"
LARGEST_PAGE = 600_000
"""Bytes of HTML, uncompressed. A map is drawn as bars of racks then, and is the largest."""
LARGEST_EXPLANATION = 150_000
"""Of a run that waits: its page with all that it needs, too."""
WORKERS = 411
BEYOND = "The list ends before this page."


def counted():
    """Lets PostgreSQL look at so many new rows, as it does by itself where there is more time."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


@pytest.fixture
def many_runs(house):
    """Ten thousand that wait, every twentieth of project "rare"."""
    first = make.run_pending(house, "run-00000")
    Run.objects.bulk_create(
        Run(
            workspace=house.workspace,
            cluster=house.cluster,
            name=f"run-{number:05}",
            labels={"project": "rare" if number % 20 == 0 else "other"},
            document=first.document,
            submitted="{}",
            created_by=house.bea,
            queued_at=first.queued_at,
            wait_kind=WaitKind.FIT,
            queue_position=number + 1,
        )
        for number in range(1, MANY)
    )
    Run.objects.filter(id=first.id).update(labels={"project": "rare"}, queue_position=1)
    counted()
    return first


@pytest.fixture
def many_machines(house):
    """Ten thousand with an H100 each, 40 to a rack."""
    Machine.objects.bulk_create(
        Machine(
            cluster=house.cluster,
            pool=house.pool,
            name=f"gpu-{number:05}",
            runtime="bubblewrap",
            simulated=True,
            cpu_cores=12,
            memory_bytes=2**37,
            last_seen_at=timezone.now(),
        )
        for number in range(MANY)
    )
    machines = list(Machine.objects.order_by("name"))
    Gpu.objects.bulk_create(
        Gpu(
            machine=each,
            uuid=f"GPU-{each.name}",
            index=0,
            product="NVIDIA H100 80GB HBM3",
            model="H100",
            memory_bytes=80 * 2**30,
        )
        for each in machines
    )
    MachineLabel.objects.bulk_create(
        MachineLabel(machine=each, key=RACK_LABEL, value=f"r{number // 40:03}", found=True)
        for number, each in enumerate(machines)
    )
    counted()


def shown(client, address):
    """The page's text; it is small, whatever the list is."""
    answer = client.get(address)
    assert answer.status_code == 200, address
    assert len(answer.content) < LARGEST_PAGE, address
    return answer.content.decode()


def names(page, start):
    return list(dict.fromkeys(re.findall(rf"<bdi>({start}-\d{{5}})</bdi>", page)))


def turn(page, rel):
    """The address of the next or previous page; None where there is none."""
    found = re.search(rf'rel="{rel}"\s+href="([^"]+)"', page)
    return unescape(found[1]) if found else None


def test_runs_and_the_queue_turn_page_by_page_and_keep_their_filters(many_runs, bea):
    page = shown(bea, f"{W}/jobs?label=project%3Drare&text=run")
    newest = names(page, "run")
    assert newest[:2] == ["run-09980", "run-09960"]
    seen, pages = [], 0
    while page is not None:
        seen += names(page, "run")
        pages += 1
        older = turn(page, "next")
        back = turn(page, "prev")
        page = shown(bea, older) if older else None
    assert seen == [f"run-{number:05}" for number in range(MANY - 20, -1, -20)]
    assert pages == -(-len(seen) // len(newest))
    assert "label=project%3Drare" in back
    assert "text=run" in back
    assert len(names(shown(bea, back), "run")) == len(newest)

    for query in (f"before={many_runs.id}", "before=0", f"after={2**62}"):
        beyond = shown(bea, f"{W}/jobs?text=run&{query}")
        assert BEYOND in beyond
        assert f'href="{W}/jobs?text=run"' in beyond
        assert "No run" not in beyond
    for garbage in ("before=-1", "before=abc", "after=1e3", f"before={'9' * 5000}"):
        assert names(shown(bea, f"{W}/jobs?{garbage}"), "run")[0] == "run-09999"

    # The queue, in its order.
    page = shown(bea, f"{W}/jobs/queue")
    first = names(page, "run")
    assert first == [f"run-{number:05}" for number in range(len(first))]
    assert f"1–{len(first)} of 10,000" in page
    second = shown(bea, turn(page, "next"))
    assert names(second, "run")[0] == f"run-{len(first):05}"
    assert names(shown(bea, turn(second, "prev")), "run") == first
    last = shown(bea, f"{W}/jobs/queue?page={MANY // len(first)}")
    assert names(last, "run")[-1] == "run-09999"
    assert turn(last, "next") is None
    beyond = shown(bea, f"{W}/jobs/queue?page=9999")
    assert BEYOND in beyond
    assert "Nothing waits" not in beyond
    for garbage in ("abc", "0", "-3", "9" * 5000):
        assert names(shown(bea, f"{W}/jobs/queue?page={garbage}"), "run") == first


def test_machines_their_map_and_an_explanation_are_small_pages(many_machines, house, bea, ana):
    page = shown(bea, f"{M}?model=H100&text=gpu-0")
    assert names(page, "gpu")[0] == "gpu-00000"
    after = turn(page, "next")
    assert "model=H100" in after
    assert "text=gpu-0" in after
    assert names(shown(bea, after), "gpu")[0] == f"gpu-{len(names(page, 'gpu')):05}"
    for query in ("", "&text=gpu-0"):
        beyond = shown(bea, f"{M}?after=zzz{query}")
        assert BEYOND in beyond
        assert "No machine" not in beyond
    assert "each rack is a bar" in shown(bea, f"{M}/map")
    assert "gpu-00041" in shown(bea, f"{M}/map?rack=r001")

    run = make.run_pending(house, document=make.document_make(gpus=WORKERS, machines=WORKERS))
    cluster_pass(house.cluster.id)
    explanation = f"{W}/jobs/main/{run.name}/explanation"
    assert len(shown(bea, explanation)) < LARGEST_EXPLANATION
    page = shown(bea, f"{W}/jobs/main/{run.name}")
    assert "Why it is waiting" in page
    assert len(page) < LARGEST_EXPLANATION
    assert 'explanation?cause=1&amp;row=1">and 9992 more</a>' in page
    row = shown(bea, f"{explanation}?cause=1&row=1")
    assert "1–200 of 10,000 machines" in row
    assert turn(row, "next") == f"{explanation}?cause=1&row=1&page=2"
    assert "9,801–10,000 of 10,000 machines" in shown(bea, f"{explanation}?cause=1&row=1&page=999999")
    first = shown(bea, f"{explanation}?cause=1")
    last = shown(bea, f"{explanation}?cause=1&page=999999")
    assert "1–1 of 1 row</span>" in last
    assert turn(last, "next") is None
    assert names(shown(bea, f"{explanation}?cause=1&page=abc"), "gpu") == names(first, "gpu")


def test_hundreds_of_workers_turn_page_by_page_and_keep_current(house, bea):
    run = make.run_pending(house, document=make.document_make(gpus=WORKERS, machines=WORKERS))
    address = f"{W}/jobs/main/{run.name}"
    page, seen, pages = shown(bea, address), [], 0
    while page is not None:
        seen += re.findall(r"<bdi>ddp-resnet50-(\d+)</bdi>", page)
        pages += 1
        older = turn(page, "next")
        page = shown(bea, older) if older else None
    assert seen == [str(rank) for rank in range(WORKERS)]
    assert pages == 9

    second = shown(bea, f"{address}?workers=2")
    assert "51–100 of 411 workers" in second
    assert turn(second, "prev") == f"{address}?workers=1#workers"
    assert turn(second, "next") == f"{address}?workers=3#workers"
    assert f'hx-get="{address}?workers=2"' in second
    live = bea.get(f"{address}?workers=2", headers={"HX-Request": "true"}).content.decode()
    assert re.findall(r'id="w-state-(\d+)"', live) == [str(rank) for rank in range(50, 100)]
    assert "401–411 of 411 workers" in shown(bea, f"{address}?workers=9999")
    for garbage in ("abc", "9" * 5000):
        assert "1–50 of 411 workers" in shown(bea, f"{address}?workers={garbage}")


def test_a_runs_ten_thousand_events_are_the_latest_of_them(house, bea):
    run = make.run_pending(house)
    RunEvent.objects.bulk_create(
        RunEvent(run=run, at=timezone.now(), attempt_no=1, state="Pending", reason={"code": "queued"})
        for _ in range(MANY)
    )
    page = shown(bea, f"{W}/jobs/main/{run.name}")
    assert page.count('<span class="what">') == 200
