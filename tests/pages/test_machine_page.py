"""A machine's page: GPUs and holders, where it is and how that is known."""

import html
from datetime import timedelta

import pytest
from django.utils import timezone

from machines.models import Fabric, Gpu, HealthEvent, Machine
from tenancy.models import Membership, Organization, Workspace
from tests import factories as make
from tests.pages.conftest import signed_in

GPU4 = "/o/acme/clusters/main/machines/gpu-04"
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


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"draining_at": timezone.now(), "cordoned_by": "ana"}, "What still ran here goes back to the queue"),
        ({"unreachable_at": timezone.now()}, "not heard from; noticed"),
        ({"last_seen_at": None}, "its agent has not been heard yet; joined"),
        ({"two_agents_at": timezone.now()}, "two agents use its credential; last heard"),
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
    assert page.count("hx-swap-oob") == 4  # state, actions, GPUs, workers
    assert "<form" not in page


def test_queries(busy, ana, django_assert_num_queries):
    ana.get(GPU4)
    with django_assert_num_queries(19):
        ana.get(GPU4)
    make.run_place(
        busy,
        make.run_pending(busy, "one", document=make.document_make("one", gpus=1, machines=1)),
        [Machine.objects.get(name="gpu-04")],
        gpus=1,
    )
    with django_assert_num_queries(19):
        ana.get(GPU4)


def test_the_newest_changes_of_health_are_shown_and_the_others_folded(busy, bea):
    machine = Machine.objects.get(name="gpu-04")
    assert "No change of health was reported." in text(bea.get(GPU4))
    for number in range(7):
        HealthEvent.objects.create(
            machine=machine,
            event_id=str(number),
            at=timezone.now() - timedelta(hours=number),
            subject="gpu GPU-gpu-04-5",
            name=f"GPU {number}",
            was="healthy",
            health="suspect",
            evidence="NVLink errors growing (12 in 10 min)",
        )
    answer = bea.get(GPU4)
    assert [event.name for event in answer.context["events"]] == [f"GPU {number}" for number in range(5)]
    page = text(answer)
    assert "<bdi>GPU 0</bdi>: <bdi>NVLink errors growing (12 in 10 min)</bdi>; healthy before" in page
    assert "<summary>2 earlier</summary>" in page


def test_what_the_agents_checks_found_comes_with_what_to_do(busy, bea):
    checks = [
        {"what": "driver", "verdict": "ok", "found": "570.86", "fix": ""},
        {"what": "memlock", "verdict": "wrong", "found": "<64 KiB>", "fix": "ulimit -l unlimited"},
    ]
    Machine.objects.filter(name="gpu-04").update(
        checks=checks, clock_skew=-7200, health="suspect", evidence="fans at full speed"
    )
    page = text(bea.get(GPU4))
    assert "<td><bdi><64 KiB></bdi></td>" in page
    assert "<code>ulimit -l unlimited</code>" in page
    assert "clock 2 h ahead" in page
    assert "The machine as a whole: <bdi>fans at full speed</bdi>" in page
