"""The page of fabrics: how each was found, its name, and whether it is there for storage."""

import html

import pytest

from machines.models import Fabric, Machine
from machines.services import machine_label_set
from machines.states import FABRIC_LABEL
from tenancy.models import AuditEvent
from tests import factories

FABRICS = "/o/acme/clusters/main/fabrics"


def text(answer) -> str:
    return " ".join(html.unescape(answer.content.decode()).split())


@pytest.fixture
def guessed(busy) -> Fabric:
    """ib-b is known by a guess alone."""
    Fabric.objects.filter(name="ib-b").update(guessed=True)
    return Fabric.objects.get(name="ib-b")


def test_fabrics_are_shown_with_how_they_were_found_and_a_guess_as_a_guess(busy, guessed, ana, vic):
    machine_label_set(
        machine=Machine.objects.get(name="gpu-05"),
        key=FABRIC_LABEL,
        value="lab",
        actor=factories.actor_of(busy.ana),
    )

    page = text(ana.get(FABRICS))

    assert "subnet manager 0x…c1" in page
    assert "Guess</span> by subnet prefix and manager LID: its subnet manager's GUID is not known" in page
    assert "<bdi>lab</bdi></a>, 1 machine" in page
    assert page.count("Rename…") == 2
    assert 'aria-current="page">Fabrics</a>' in page
    seen = text(vic.get(FABRICS))
    assert "ib-b" in seen
    assert "Rename…" not in seen


def test_a_fabric_is_renamed_and_its_machines_are_found_by_the_new_name(busy, ana):
    assert "It stays what it is: ports that share a subnet manager." in text(
        ana.get(f"{FABRICS}/ib-b/rename")
    )

    answer = ana.post(f"{FABRICS}/ib-b/rename", {"name": "storage.east"}, follow=True)

    assert "ib-b is named storage.east now." in text(answer)
    assert "storage.east" in text(ana.get("/o/acme/clusters/main/machines/gpu-06"))
    event = AuditEvent.objects.get(action="fabric.change")
    assert (event.actor, event.target, event.after) == (
        "ana",
        "ib-b",
        {"name": "storage.east", "storage": False},
    )


@pytest.mark.parametrize(
    ("name", "status", "problem"),
    [
        ("", 422, "A fabric needs a name."),
        ("ib b", 422, "`ib b` is not a label's value."),
        ("ib-a", 409, "main has a fabric named ib-a."),
    ],
)
def test_a_name_that_can_not_be_is_asked_again(busy, ana, name, status, problem):
    answer = ana.post(f"{FABRICS}/ib-b/rename", {"name": name})

    assert answer.status_code == status
    assert problem in text(answer)
    assert f'value="{name}"' in text(answer)
    assert set(Fabric.objects.values_list("name", flat=True)) == {"ib-a", "ib-b"}


def test_marking_as_storage_tells_first_what_that_does_to_runs(busy, ana):
    """ddp-resnet50 has no room now; llm-7 runs on ib-a and would have no common fabric any more."""
    question = text(ana.get(f"{FABRICS}/ib-a/use"))
    assert "Mark <bdi>ib-a</bdi> as storage?" in question
    assert "<bdi>llm-7</bdi> runs in ib-a and would span" in question

    answer = ana.post(f"{FABRICS}/ib-a/use", {"storage": "1"}, follow=True)

    assert "ib-a is kept for storage: runs don't use its ports." in text(answer)
    assert "Storage</span> out of placement" in text(answer)
    back = text(ana.get(f"{FABRICS}/ib-a/use"))
    assert "Use <bdi>ib-a</bdi> for runs?" in back
    ana.post(f"{FABRICS}/ib-a/use", {"storage": "0"})
    assert not Fabric.objects.get(name="ib-a").storage


def test_only_operators_change_fabrics_and_strangers_see_none(busy, bea, cyd):
    for question in ("rename", "use"):
        assert bea.get(f"{FABRICS}/ib-a/{question}").status_code == 403
        assert bea.post(f"{FABRICS}/ib-a/{question}", {"name": "x", "storage": "1"}).status_code == 403
    assert cyd.get(FABRICS).status_code == 404
    assert Fabric.objects.filter(name="ib-a", storage=False).exists()


def test_a_fabric_that_is_not_there(busy, ana):
    assert ana.get(f"{FABRICS}/ib-z/rename").status_code == 404


def test_a_cluster_without_fabrics_says_how_they_come(house, ana):
    assert "No fabrics yet." in text(ana.get(FABRICS))
