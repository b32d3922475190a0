"""What an explanation offers is done by a button: the document edited, a machine uncordoned, a run stopped."""

import html
import re

import pytest
from django.utils import timezone

from machines.models import Machine
from runs.models import Run
from runs.offers import CHANGED
from runs.scheduling.passes import cluster_pass
from tests import factories as make
from tests.runs.explained import holding, waiting

DDP = "/o/acme/w/vision/jobs/main/ddp-resnet50"


@pytest.fixture
def stuck(house):
    """`ddp-resnet50` waits: `eval-3` holds one of three machines, one is free, one cordoned; one GPU is suspect."""
    machines = [make.machine_make(house, f"gpu-0{number}") for number in (1, 2, 3)]
    make.machine_make(house, "gpu-04", suspect=(5,))
    Machine.objects.filter(name="gpu-03").update(
        cordoned_at=timezone.now(), cordoned_by="ops", cordon_reason="changing a cable"
    )
    holding(house, "eval-3", machines[1], gpus=4)
    run = waiting(house)
    cluster_pass(house.cluster.id)
    return Run.objects.get(id=run.id)


def text(answer):
    plain = re.sub(r"<[^>]+>", " ", re.sub(r"</?bdi>", "", answer.content.decode()))
    return " ".join(html.unescape(plain).split())


def offers(client, address=DDP):
    """Button → its page's address."""
    page = client.get(address).content.decode()
    found = re.findall(r'href="([^"]+/offers/[0-9a-f]{8})">([^<]+)</a>', page)
    return {html.unescape(button): link for link, button in found}


def edits(client):
    return [link for button, link in offers(client).items() if button == "Edit and requeue…"]


def test_the_run_page_has_a_button_for_each(stuck, ana):
    assert list(offers(ana)) == ["Edit and requeue…", "Uncordon gpu-03…", "Stop eval-3…"]


def test_stopping_another_run_names_whose_it_is_and_what_is_lost(stuck, ana, house):
    link = offers(ana)["Stop eval-3…"]
    page = text(ana.get(link))
    assert (
        "eval-3 stops; it is of bea. Its worker gets SIGTERM and 30 s, then SIGKILL. 4 GPUs become free."
        in page
    )
    assert "ddp-resnet50 then gets: " in page
    answer = ana.post(link)
    assert (answer.status_code, answer["Location"]) == (302, DDP)
    assert Run.objects.get(name="eval-3").wanted == "stop"
    assert Run.objects.get(name="ddp-resnet50").wanted == "run"


def test_uncordoning_starts_it(stuck, ana, house):
    ana.post(offers(ana)["Uncordon gpu-03…"])
    assert Machine.objects.get(name="gpu-03").cordoned_at is None
    cluster_pass(house.cluster.id)
    assert Run.objects.get(id=stuck.id).state == "Starting"


def test_an_edit_keeps_name_history_and_time_in_the_queue_and_starts_it(stuck, bea, house):
    link = offers(bea)["Edit and requeue…"]
    assert "This is merged into the document of ddp-resnet50; its name, page and history stay." in text(
        bea.get(link)
    )
    assert bea.post(link).status_code == 302
    run = Run.objects.get(id=stuck.id)
    assert (run.name, run.queued_at, run.edition) == ("ddp-resnet50", stuck.queued_at, stuck.edition + 1)
    cluster_pass(house.cluster.id)
    assert Run.objects.get(id=stuck.id).state == "Starting"


def test_what_no_longer_starts_it_is_not_done(stuck, ana, house):
    link = offers(ana)["Stop eval-3…"]
    Run.objects.filter(name="eval-3").update(state="Stopped", reason={"code": "stopped", "by": "bea"})
    page = text(ana.post(link))
    assert CHANGED in page
    assert Run.objects.get(name="eval-3").wanted == "run"


def test_an_unknown_offer_leads_to_those_of_now(stuck, ana):
    answer = ana.get(f"{DDP}/offers/12345678")
    assert answer.status_code == 200
    assert CHANGED in text(answer)
    assert len(offers(ana, f"{DDP}/offers/12345678")) == 3


def test_who_may_not_gets_words_to_send(stuck, ana, bea, vic):
    assert list(offers(bea)) == ["Edit and requeue…", "Stop eval-3…"]
    assert offers(vic) == {}
    pleas = re.findall(r'data-copy="(Please [^"]+)"', html.unescape(vic.get(DDP).content.decode()))
    uncordon = next(each for each in pleas if "ncordon" in each)
    assert uncordon.startswith("Please uncordon gpu-03 in main: ddp-resnet50 (16 GPUs) would start at once: ")
    assert uncordon.endswith(f"{DDP}/explanation")
    assert "An editor of vision can apply changes of this run." in text(vic.get(DDP))
    for button, link in offers(ana).items():
        assert vic.post(link).status_code == 403, button
    assert bea.post(offers(ana)["Uncordon gpu-03…"]).status_code == 403
    assert Run.objects.get(name="eval-3").wanted == "run"
    assert Machine.objects.get(name="gpu-03").cordoned_at is not None


def test_a_cause_of_many_rows_goes_on_at_pages_of_its_own(house, stuck, bea):
    for number in range(120):  # each cordoned for a reason of its own, so that no two share a row
        machine = make.machine_make(house, f"old-{number:03}")
        reason = {"cordoned_at": timezone.now(), "cordoned_by": "ops", "cordon_reason": f"reason {number}"}
        Machine.objects.filter(id=machine.id).update(**reason)
    cluster_pass(house.cluster.id)
    page = bea.get(f"{DDP}/explanation").content.decode()
    assert "111 rows more" in page
    link = html.unescape(re.search(r'href="([^"]+cause=\d+)">111 rows', page)[1])
    assert "1–50 of 121 rows" in text(bea.get(link))
    assert "51–100 of 121 rows" in text(bea.get(f"{link}&page=2"))
    assert "old-119" in text(bea.get(f"{link}&page=3"))
