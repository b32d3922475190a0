"""The explanation on the run's page, on its workers' pages, and at an address of its own."""

import html
from datetime import timedelta
from urllib.parse import quote

import pytest
from django.utils import timezone

from machines.models import Machine
from placement.words import machine_sentence
from runs.models import DecisionRecord, RunWait
from runs.scheduling.passes import cluster_pass
from tests import factories as make
from tests.runs.explained import holding, waiting

JOBS = "/o/acme/w/vision/jobs/main"
DDP = f"{JOBS}/ddp-resnet50"
WORKER = "/o/acme/w/vision/workers/ddp-resnet50-0"
HEADLINE = "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-03)."


def text(answer):
    return html.unescape(answer.content.decode())


@pytest.fixture
def waits(house):
    """`ddp-resnet50` waits: `llm-7` has two of three machines, a fourth is cordoned."""
    machines = [make.machine_make(house, f"gpu-0{number}") for number in (1, 2, 3, 4)]
    Machine.objects.filter(name="gpu-04").update(
        cordoned_at=timezone.now() - timedelta(days=2, hours=1),
        cordoned_by="ops",
        cordon_reason="<b>cable</b>",
    )
    holding(house, "llm-7", machines[0], machines[1])
    run = waiting(house)
    cluster_pass(house.cluster.id)
    return run


SECTIONS = (
    "No set of machines can hold it now.",
    ">What would start it now</h3>",
    "Uncordon gpu-04",
    "<h3>When</h3>",
    "No time can be given: llm-7 has no time limit. 2 machines are reserved for this run.",
    "<h3>Domains</h3>",
    "1 of 2 found",
    ">Machines</h3>",
    "Cordoned by ops 2 d ago: “<b>cable</b>”; 8 of 8 GPUs free",
    "0 of 8 GPUs free, 8 needed; 8 held by llm-7",
    "<h3>What it waited for</h3>",
)


@pytest.mark.parametrize("address", [DDP, WORKER, f"{DDP}/explanation"])
def test_every_part_is_told_in_order(waits, bea, address):
    answer = bea.get(address)
    page = text(answer)
    assert [part for part in SECTIONS if part not in page] == []
    places = [page.index(part) for part in SECTIONS]
    assert places == sorted(places)
    assert HEADLINE in page
    assert "As of pass 18,205" in page
    assert "<b>cable</b>" not in answer.content.decode()


def test_a_change_of_the_document_is_shown_as_it_is_to_be_merged(waits, bea):
    page = text(bea.get(DDP))
    assert "Ask for 1 machine and 8 GPUs instead of 2 and 16" in page
    patch = page[page.index("Change of the document") :]
    assert '"requested_resources": {' in patch[:400]


def test_the_history_sums_up_the_wait(waits, bea):
    RunWait.objects.update(since=timezone.now() - timedelta(minutes=12, seconds=5))
    page = text(bea.get(f"{DDP}/explanation"))
    assert "Waited 12 min 5 s: fit 12 min 5 s." in page


def test_the_fragment_is_the_same_while_nothing_has_changed(waits, bea):
    def key():
        page = text(bea.get(DDP, headers={"HX-Request": "true"}))
        return page[page.index('data-key="') :][:30]

    first = key()
    cluster_pass(waits.cluster_id)
    assert key() == first
    Machine.objects.filter(name="gpu-03").update(cordoned_at=timezone.now())
    cluster_pass(waits.cluster_id)
    assert key() != first


def test_a_placed_run_links_to_why_it_is_there(house, bea):
    for number in (1, 2, 3):
        make.machine_make(house, f"gpu-0{number}")
    waiting(house)
    cluster_pass(house.cluster.id)
    page = text(bea.get(DDP))
    assert f'<a href="{DDP}/explanation">Why it was placed there</a>' in page
    assert "Why it is waiting" not in page

    page = text(bea.get(f"{DDP}/explanation"))
    assert "<title>Why ddp-resnet50 landed where it did · Astraeus</title>" in page
    assert "Placed on gpu-01 and gpu-02, one rack on one InfiniBand fabric." in page
    assert page.index("Chosen") < page.index("Rank 0 with 8 GPUs") < page.index("Usable, not chosen")
    assert ">What would start it now</h3>" not in page


def test_a_time_that_is_past_has_an_address(waits, bea):
    DecisionRecord.objects.update(at=timezone.now() - timedelta(hours=2))
    RunWait.objects.update(since=timezone.now() - timedelta(hours=2))
    Machine.objects.filter(name="gpu-03").update(cordoned_at=timezone.now())
    cluster_pass(waits.cluster_id)
    at = (timezone.now() - timedelta(hours=1)).isoformat(timespec="seconds")
    page = text(bea.get(f"{DDP}/explanation?at={quote(at)}"))
    assert HEADLINE in page
    assert "Why it was waiting" in page
    assert ">What would start it now</h3>" not in page


def test_what_is_no_time_and_what_is_not_kept_are_told(waits, bea):
    answer = bea.get(f"{DDP}/explanation?at=yesterday")
    assert answer.status_code == 400
    assert "`at` must be a time with its zone: 2026-03-01T14:03:07Z." in text(answer)
    answer = bea.get(f"{DDP}/explanation?at=2026-01-01T00:00:00Z")
    assert answer.status_code == 404


def test_it_is_read_by_viewers_and_not_by_strangers(waits, vic, cyd):
    assert HEADLINE in text(vic.get(f"{DDP}/explanation"))
    assert cyd.get(f"{DDP}/explanation").status_code == 404


def test_of_many_rows_only_those_are_put_into_words_that_are_shown(house, bea, monkeypatch):
    for number in range(12):
        make.machine_make(house, f"gpu-{number:02}")
        Machine.objects.filter(name=f"gpu-{number:02}").update(
            cordoned_at=timezone.now(), cordoned_by="ops", cordon_reason=f"ticket {number}"
        )
    waiting(house)
    cluster_pass(house.cluster.id)
    said = set()

    def sentence(row, *others):
        said.update(row["machines"])
        return machine_sentence(row, *others)

    monkeypatch.setattr("placement.words.machine_sentence", sentence)
    page = text(bea.get(f"{DDP}/explanation"))
    assert said == {f"gpu-{number:02}" for number in range(10)}
    assert "“ticket 9”" in page
    assert "2 rows more" in page

    told = bea.get("/api/v1/o/acme/w/vision/runs/ddp-resnet50/explanation").json()
    assert [row["text"].partition("“")[2][:9] for row in told["machines"]] == [
        f"ticket {number}”"[:9] for number in range(12)
    ]


def test_queries(waits, bea, django_assert_num_queries):
    bea.get(DDP)
    cluster_pass(waits.cluster_id)
    with django_assert_num_queries(25):
        bea.get(DDP)
    with django_assert_num_queries(16):
        bea.get(DDP)  # worked out once for each pass
