"""`manage.py seed_demo`: what it puts into an empty cluster, and the pages on it."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Count

from machines.models import Gpu, HealthEvent, Machine
from runs.models import Allocation, Reservation, Run
from runs.states import RUN_ENDED, RunState, WaitKind
from tenancy.models import User
from tests.pages.conftest import signed_in

pytestmark = pytest.mark.django_db(transaction=True)


def seed(**options):
    said = StringIO()
    call_command("seed_demo", stdout=said, **options)
    return said.getvalue()


def test_a_small_cluster_has_some_of_everything(static_root):
    said = seed()
    assert "64 machines\n200 of 200 finished runs\n" in said
    assert "12 runs that wait\n" in said
    assert {machine.state.value for machine in Machine.objects.all()} == {
        "ready",
        "cordoned",
        "draining",
        "unreachable",
    }
    assert set(Gpu.objects.values_list("health", flat=True)) == {"healthy", "suspect", "faulty"}
    assert HealthEvent.objects.filter(health="faulty").exists()
    states = dict(Run.objects.order_by().values_list("state").annotate(Count("id")))
    assert states.keys() == set(RunState)
    assert states[RunState.PENDING] == 12
    assert Run.objects.filter(state__in=RUN_ENDED).count() == 200
    assert set(Run.objects.waiting().values_list("wait_kind", flat=True)) == set(WaitKind)
    assert Reservation.objects.exists()
    held = Allocation.objects.filter(released_at=None, gpu__isnull=False)
    assert not held.exclude(gpu__health="healthy").filter(gpu__health="faulty").exists()
    demo = signed_in(User.objects.get(username="demo"))
    for address in (
        "/o/acme/w/vision/jobs",
        "/o/acme/clusters/main/machines",
        "/o/acme/clusters/main/machines/map",
    ):
        assert demo.get(address).status_code == 200


def test_the_same_seed_gives_the_same_scene(static_root):
    def scene(cluster):
        runs = Run.objects.filter(cluster__slug=cluster).order_by("id")
        machines = Machine.objects.filter(cluster__slug=cluster).order_by("id")
        return [
            list(runs.values_list("labels", "state", "document__spec")),
            list(machines.values_list("name", "cordon_reason")),
        ]

    for cluster in ("one", "two"):
        seed(machines=24, waiting=4, finished=10, cluster=cluster)
    assert scene("one") == scene("two")


def test_a_cluster_with_machines_is_left_alone(static_root):
    seed(machines=8, waiting=0, finished=0)
    with pytest.raises(CommandError, match="The cluster main has machines already"):
        seed(machines=8, waiting=0, finished=0)
    with pytest.raises(CommandError, match="--machines takes a number from 1 on"):
        seed(machines=0)
