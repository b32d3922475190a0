"""A machine's page: GPUs and holders, where it is and how that is known, labels edited in place."""

import html

import pytest
from django.utils import timezone

from machines.models import Fabric, Gpu, Machine, MachineLabel
from machines.states import FABRIC_LABEL, RACK_LABEL
from tenancy.models import AuditEvent, Membership, Organization, Workspace
from tests import factories as make
from tests.pages.conftest import signed_in

GPU4 = "/o/acme/clusters/main/machines/gpu-04"
LABEL = f"{GPU4}/label"
FRAGMENT = {"HX-Request": "true"}


def text(answer):
    return " ".join(html.unescape(answer.content.decode()).split())


def place(client, slug):
    return {each.slug: each for each in client.get(GPU4).context["places"]}[slug]


def test_gpus_name_their_holders_and_their_health(busy, bea):
    answer = bea.get(GPU4)
    rows = [
        (row.gpu.index, row.gpu.health, row.holder.name if row.holder else None)
        for row in answer.context["gpus"]
    ]
    assert rows == [
        (0, "healthy", "tune-9-0"),
        (1, "healthy", "tune-9-0"),
        (2, "healthy", "tune-9-0"),
        (3, "healthy", "tune-9-0"),
        (4, "healthy", None),
        (5, "suspect", None),
        (6, "healthy", None),
        (7, "faulty", None),
    ]
    page = text(answer)
    assert "suspect: NVLink errors growing" in page
    assert "3 of 8 free, 1 suspect, 1 faulty" in page
    assert '<a href="/o/acme/w/vision/workers/tune-9-0">' in page


@pytest.mark.parametrize(("gpus", "words"), [(2, "GPUs 0–1, placed"), (1, "GPU 0, placed")])
def test_workers_say_which_gpus_they_hold(house, bea, gpus, words):
    machine = make.machine_make(house, "gpu-04")
    run = make.run_pending(house, "one", document=make.document_make("one", gpus=gpus, machines=1))
    make.run_place(house, run, [machine], gpus=gpus)
    assert words in text(bea.get(GPU4))


def test_what_one_may_not_see_is_neither_named_nor_counted(busy):
    other = Workspace.objects.create(organization=busy.organization, slug="audio", name="Audio")
    Membership.objects.filter(user=busy.vic).update(workspace=other)
    page = text(signed_in(busy.vic).get(GPU4))
    assert "held by another workspace" in page
    assert "tune-9" not in page
    assert "No worker of yours is here." in page


def test_a_gpu_that_is_gone_but_held_stays_visible(busy, bea):
    Gpu.objects.filter(machine__name="gpu-04", index__in=(0, 6)).update(present=False)
    rows = bea.get(GPU4).context["gpus"]
    assert [row.gpu.index for row in rows] == [0, 1, 2, 3, 4, 5, 7]
    assert "not found any more" in text(bea.get(GPU4))


def test_where_it_is_says_how_that_is_known(busy, bea):
    assert (place(bea, "fabric").value, place(bea, "fabric").how) == (
        "ib-a",
        "found: subnet manager 0x…c1, 8 ports",
    )
    assert (place(bea, "rack").value, place(bea, "rack").how) == ("r2", "found: reported by the machine")
    assert (place(bea, "nvlink-domain").value, place(bea, "nvlink-domain").how) == ("", "not found")


def test_a_guessed_fabric_is_called_a_guess(busy, bea):
    Fabric.objects.filter(name="ib-a").update(guessed=True)
    assert place(bea, "fabric").how == "found, a guess: the subnet manager's GUID is not known"


def test_an_nvlink_domain_is_found_by_its_gpus(busy, bea):
    Gpu.objects.filter(machine__name="gpu-04").update(nvlink_domain="d1")
    assert (place(bea, "nvlink-domain").value, place(bea, "nvlink-domain").how) == (
        "d1",
        "found: reported by its GPUs",
    )


def test_a_label_is_set_by_a_form_without_javascript(busy, ana):
    assert "Save rack" in text(ana.get(f"{GPU4}?edit=rack"))
    answer = ana.post(LABEL, {"place": "rack", "value": " r7 ", "save": "1"})
    assert answer["Location"] == GPU4
    page = text(ana.get(GPU4))
    assert "Rack of gpu-04 is r7." in page
    assert "found: r2" in page
    set_ = place(ana, "rack")
    assert (set_.value, set_.found, set_.set_by) == ("r7", "r2", "ana")
    event = AuditEvent.objects.get(action="machine.label")
    assert (event.actor, event.target, event.after) == ("ana", "gpu-04", {RACK_LABEL: "r7"})


def test_a_label_is_edited_in_its_line(busy, ana):
    form = text(ana.get(f"{GPU4}?edit=rack", headers=FRAGMENT))
    assert form.startswith('<div class="place" id="place-rack">')
    assert 'value="r2"' in form
    saved = ana.post(LABEL, {"place": "rack", "value": "r7", "save": "1"}, headers=FRAGMENT)
    assert text(saved).startswith('<div class="place" id="place-rack">')
    assert "<bdi>r7</bdi>" in text(saved)
    assert 'aria-label="Edit rack" autofocus' in text(saved)
    assert "Rack of gpu-04 is r7." in saved["HX-Trigger"]


def test_cancelling_brings_the_line_back(busy, ana):
    line = text(ana.get(f"{GPU4}?place=rack", headers=FRAGMENT))
    assert "Save rack" not in line
    assert "<bdi>r2</bdi>" in line


@pytest.mark.parametrize("headers", [{}, FRAGMENT])
def test_a_wrong_value_is_told_and_kept(busy, ana, headers):
    answer = ana.post(LABEL, {"place": "rack", "value": "rack 7", "save": "1"}, headers=headers)
    assert answer.status_code == 422
    page = text(answer)
    assert "`rack 7` is not a label's value." in page
    assert 'value="rack 7"' in page
    assert 'aria-invalid="true"' in page
    assert not MachineLabel.objects.filter(found=False).exists()


def test_what_was_found_counts_again(busy, ana):
    ana.post(LABEL, {"place": "fabric", "value": "ib-z", "save": "1"})
    assert place(ana, "fabric").value == "ib-z"
    assert "Use what was found" in text(ana.get(f"{GPU4}?edit=fabric"))
    ana.post(LABEL, {"place": "fabric", "unset": "1"})
    assert place(ana, "fabric").value == "ib-a"
    assert not MachineLabel.objects.filter(key=FABRIC_LABEL).exists()


def test_other_labels_are_set_and_removed(busy, ana):
    ana.post(LABEL, {"key": "team", "value": "vision"})
    assert "Label team is vision." in text(ana.get(GPU4))
    assert "Remove label team" in text(ana.get(GPU4))
    ana.post(LABEL, {"key": "team", "unset": "1"})
    assert "Label team is gone." in text(ana.get(GPU4))


def test_a_wrong_key_is_told_and_kept(busy, ana):
    answer = ana.post(LABEL, {"key": "no good", "value": "v"})
    assert answer.status_code == 422
    page = text(answer)
    assert "`no good` is not a label's key." in page
    assert 'value="no good"' in page
    assert 'value="v"' in page


def test_cordon_and_uncordon_ask_first(busy, ana):
    assert "It takes no new work. What runs there goes on." in text(ana.get(f"{GPU4}/cordon"))
    ana.post(f"{GPU4}/cordon", {"reason": "changing a cable"})
    page = text(ana.get(GPU4))
    assert "Cordoned" in page
    assert "by ana" in page
    assert ": “changing a cable”" in page
    question = text(ana.get(f"{GPU4}/uncordon"))
    assert "“changing a cable”. New work may land on it at once." in question
    ana.post(f"{GPU4}/uncordon")
    assert Machine.objects.get(name="gpu-04").cordoned_at is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"draining_at": timezone.now()}, "takes no new work since"),
        ({"unreachable_at": timezone.now()}, "not heard from; noticed"),
        ({"last_seen_at": None}, "its agent has not been heard yet; joined"),
        ({"quarantined_at": timezone.now()}, "until an owner decides; since"),
    ],
)
def test_other_states_in_words(busy, ana, fields, words):
    Machine.objects.filter(name="gpu-04").update(**fields)
    assert words in text(ana.get(GPU4))


def test_a_machine_that_has_reported_nothing_yet(house, ana):
    Machine.objects.create(cluster=house.cluster, pool=house.pool, name="fresh", runtime="docker")
    page = text(ana.get("/o/acme/clusters/main/machines/fresh"))
    assert "No GPUs known yet: its agent has not reported what it has." in page


def test_another_organizations_machine_is_not_found(busy, cyd):
    Organization.objects.get(slug="other")
    assert cyd.get(GPU4).status_code == 404


def test_the_live_fragment_leaves_forms_alone(busy, ana):
    page = text(ana.get(GPU4, headers=FRAGMENT))
    assert page.count("hx-swap-oob") == 3
    assert "<form" not in page


def test_queries(busy, ana, django_assert_num_queries):
    ana.get(GPU4)
    with django_assert_num_queries(18):
        ana.get(GPU4)
    make.run_place(
        busy,
        make.run_pending(busy, "one", document=make.document_make("one", gpus=1, machines=1)),
        [Machine.objects.get(name="gpu-04")],
        gpus=1,
    )
    with django_assert_num_queries(18):
        ana.get(GPU4)
