"""Machines that go quiet, and a console that was deaf itself."""

import time

import pytest

from common import nudge
from machines import silence
from machines.models import Cluster, Machine
from machines.services import machines_seen, machines_wake_lagging, seen_key
from machines.silence import machine_mark_unreachable, machines_heard_after_start, machines_sweep_silent
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet(house):
    """30 machines that were heard just now."""
    found = [factories.machine_make(house, f"gpu-{n:02}", gpus=0, fabric=None, rack=None) for n in range(30)]
    quiet(found, 0)
    return found


def quiet(machines, seconds: float) -> None:
    machines_seen((machine.id for machine in machines), time.time() - seconds)


def unreachable() -> list[str]:
    return list(Machine.objects.exclude(unreachable_at=None).values_list("name", flat=True))


def test_a_machine_is_unreachable_after_45_seconds(fleet):
    quiet(fleet[:1], 44)
    machines_sweep_silent()
    assert unreachable() == []

    before = fleet[0].version
    quiet(fleet[:1], 46)
    machines_sweep_silent()
    assert unreachable() == ["gpu-00"]
    fleet[0].refresh_from_db()
    assert fleet[0].version == before + 1, "placement sees it"
    since = fleet[0].unreachable_at
    machines_sweep_silent()
    fleet[0].refresh_from_db()
    assert fleet[0].unreachable_at == since, "it has been so since the first time"


def test_an_emptied_redis_counts_as_having_heard_everybody(fleet, empty_redis):
    quiet(fleet[:1], 46)
    for machine in fleet:
        empty_redis.delete(seen_key(machine.id))
    machines_sweep_silent()

    assert unreachable() == []
    assert float(empty_redis.get(seen_key(fleet[0].id))) == pytest.approx(time.time(), abs=5)


def test_a_redis_that_is_away_makes_nobody_unreachable(fleet, monkeypatch):
    quiet(fleet, 46)
    monkeypatch.setattr(silence, "client", lambda: nudge.connect("redis://127.0.0.1:1/0"))
    machines_sweep_silent()

    assert unreachable() == []


@pytest.mark.parametrize(
    ("number", "seconds", "expected"), [(2, 50, 2), (3, 50, 0), (3, 600, 0), (3, 646, 3)]
)
def test_a_tenth_of_the_machines_going_quiet_together_is_given_ten_more_minutes(
    fleet, number, seconds, expected
):
    quiet(fleet[:number], seconds)
    machines_sweep_silent()

    assert len(unreachable()) == expected


def test_those_that_were_quiet_before_are_not_counted_again(fleet):
    quiet(fleet[:2], 50)
    machines_sweep_silent()
    quiet(fleet[2:4], 50)
    machines_sweep_silent()

    assert unreachable() == ["gpu-00", "gpu-01", "gpu-02", "gpu-03"]


def test_each_cluster_counts_for_itself(house, fleet):
    other = Cluster.objects.create(organization=house.organization, slug="second", name="Second")
    Machine.objects.filter(name__gte="gpu-28").update(cluster=other)
    quiet([*fleet[:2], *fleet[28:]], 50)
    machines_sweep_silent()

    assert unreachable() == ["gpu-00", "gpu-01", "gpu-28", "gpu-29"]


def test_machines_that_were_never_heard_are_left_alone(house, empty_redis):
    factories.machine_make(house, "gpu-01", gpus=0, fabric=None, seen=False)
    machines_sweep_silent()

    assert unreachable() == []
    assert list(empty_redis.scan_iter("astraeus:seen:*")) == []


def test_a_start_of_the_console_counts_as_having_heard_everybody(fleet):
    quiet(fleet, 3000)
    machines_heard_after_start()
    machines_sweep_silent()

    assert unreachable() == []


def test_marking_wakes_the_poll_and_nudges_placement(fleet, django_capture_on_commit_callbacks, empty_redis):
    with empty_redis.pubsub() as heard:
        heard.subscribe("astraeus:wake")
        assert heard.get_message(timeout=5)["type"] == "subscribe"
        with django_capture_on_commit_callbacks(execute=True):
            machine_mark_unreachable(fleet[0])
            assert empty_redis.llen("place") == 0
        assert heard.get_message(timeout=5)["data"] == str(fleet[0].id)
    assert empty_redis.llen("place") == 1


def test_the_sweep_wakes_those_that_lag_and_nobody_else(fleet, empty_redis):
    Machine.objects.update(applied_revision=1)
    Machine.objects.filter(name__in=("gpu-03", "gpu-04", "gpu-05")).update(desired_revision=2)
    machine_mark_unreachable(fleet[5])
    with empty_redis.pubsub() as heard:
        heard.subscribe("astraeus:wake")
        assert heard.get_message(timeout=5)["type"] == "subscribe"
        machines_wake_lagging()
        message = heard.get_message(timeout=5)
    assert message["data"] == f"{fleet[3].id},{fleet[4].id}"
