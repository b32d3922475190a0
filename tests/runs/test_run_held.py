"""Who holds what is read once of each attempt, and told as it is by now."""

from datetime import timedelta

import pytest
from django.utils import timezone

from machines.models import Cluster
from placement.holdings import Hold
from runs.explaining.held import Holder, held_in
from runs.models import RunAttempt
from tests import factories
from tests.runs.explained import holding

pytestmark = pytest.mark.django_db


def held(house) -> list[Holder]:
    return list(held_in(house.cluster.id, timezone.now()).holders)


def machines(holder: Holder) -> list[str]:
    return [hold.machine for hold in holder.holds]


def test_what_is_known_of_a_run_is_not_read_again(house, three, django_assert_num_queries):
    run = holding(house, "llm-7", three[0], gpus=2)
    first = held(house)
    with django_assert_num_queries(1):
        again = held(house)

    assert again == first
    assert again[0] is first[0], "made once"
    assert [(each.name, each.run_id, each.holds) for each in again] == [
        ("llm-7", run.id, (Hold("gpu-01", (0, 1), 0, 0),))
    ]


def test_runs_that_come_and_go_are_seen_at_once(house, three):
    llm_7 = holding(house, "llm-7", three[0])
    assert [each.name for each in held(house)] == ["llm-7"]
    holding(house, "eval-3", three[1])
    assert [each.name for each in held(house)] == ["eval-3", "llm-7"]
    factories.run_fail(llm_7.attempts.get())
    assert [each.name for each in held(house)] == ["eval-3"]


def test_a_worker_that_is_gone_holds_nothing_though_others_of_its_run_do(house, three):
    run = holding(house, "llm-7", three[0], three[1])
    then = timezone.now()
    assert [machines(each) for each in held(house)] == [["gpu-01", "gpu-02"]]
    gone = run.attempts.get().assignments.get(machine=three[0])
    gone.gone_at = timezone.now()
    gone.save()

    assert [machines(each) for each in held(house)] == [["gpu-02"]]
    before = held_in(house.cluster.id, then, past=True).holders
    assert [machines(each) for each in before] == [["gpu-01", "gpu-02"]]


def test_a_run_that_was_starting_when_it_was_read_ends_when_its_limit_does_by_now(house, three):
    document = factories.document_make("llm-7", gpus=8, machines=1)
    document["spec"]["task_template"]["time_limit_seconds"] = 3600
    run = factories.run_pending(house, "llm-7", document=document)
    attempt = factories.run_place(house, run, [three[0]])
    now = timezone.now()
    (starting,) = held_in(house.cluster.id, now).holders
    assert (starting.limit_at, starting.ends_at) == (None, now + timedelta(hours=1))
    RunAttempt.objects.filter(id=attempt.id).update(opened_at=now, time_limit_at=now + timedelta(minutes=7))

    (running,) = held_in(house.cluster.id, now).holders
    assert running.limit_at == running.ends_at == now + timedelta(minutes=7)
    (later,) = held_in(house.cluster.id, now + timedelta(minutes=1)).holders
    assert later is running, "from then on it is the same at any time"


def test_each_cluster_has_its_own_and_knows_the_others_attempts_by_then(
    house, three, django_assert_num_queries
):
    holding(house, "llm-7", three[0])
    other = Cluster.objects.create(organization=house.organization, slug="other", name="Other")
    assert held_in(other.id, timezone.now()).holders == []
    with django_assert_num_queries(1):
        assert held_in(other.id, timezone.now()).holders == []
    assert [each.name for each in held(house)] == ["llm-7"]
