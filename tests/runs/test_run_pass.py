"""The scheduling pass: what it writes, what it refuses, and when it writes nothing."""

import re
import threading
import time
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.db.models import F

from common import nudge
from machines.models import Cluster, Fabric, Machine, Pool, WorkspacePool
from machines.services import machine_cordon
from runs.explanations import explanation_of
from runs.models import Allocation, Assignment, Run
from runs.presentation import run_reason
from runs.scheduling import apply, passes
from runs.scheduling.apply import placement_apply
from runs.scheduling.passes import cluster_lock, cluster_pass, cluster_place, clusters_sweep
from tenancy.models import Workspace
from tests import factories
from tests.support.gangs import Gang, placed

pytestmark = pytest.mark.django_db


@pytest.fixture
def ana(house):
    return factories.actor_of(house.ana)


def submitted(house, name="ddp-resnet50", **options) -> Gang:
    return Gang(factories.run_pending(house, name, document=factories.document_make(name, **options)))


def look(gang: Gang) -> tuple[str, str]:
    run = gang.fresh
    return run.state, run_reason(run)


# --- In which order ------------------------------------------------------------------------------


def test_runs_are_placed_in_order_of_priority_and_time(house, machines):
    first = submitted(house, "first")
    second = submitted(house, "second")
    urgent = submitted(house, "urgent", priority=10)
    cluster_place(house.cluster.id)

    assert [gang.fresh.state for gang in (urgent, first, second)] == ["Starting", "Pending", "Pending"]
    assert look(first)[1].endswith("fabric ib-a has 0.")


def test_two_runs_of_one_pass_share_no_gpu(house, machines):
    gangs = [submitted(house, f"run-{number}", gpus=8) for number in range(3)]
    cluster_place(house.cluster.id)

    assert [gang.fresh.state for gang in gangs] == ["Starting", "Starting", "Pending"]
    assert Allocation.objects.filter(released_at=None, gpu__isnull=False).count() == 16


# --- What it refuses ------------------------------------------------------------------------------


def test_a_cordoned_machine_is_named_with_its_reason(house, machines, ana):
    machine_cordon(machine=machines[1], actor=ana, reason="new cable")
    gang = submitted(house)
    cluster_place(house.cluster.id)

    assert look(gang) == (
        "Pending",
        "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01).",
    )
    run = Run.objects.get(id=gang.run.id)
    rows = {row["machines"][0]: row["text"] for row in explanation_of(run)["machines"]}
    assert rows["gpu-01"] == "8 of 8 GPUs free"
    assert re.fullmatch(r"Cordoned by ana \d s ago: “new cable”; 8 of 8 GPUs free", rows["gpu-02"])
    assert Assignment.objects.count() == 0


def test_the_same_refusal_again_writes_its_age_only(house, machines, ana):
    machine_cordon(machine=machines[1], actor=ana)
    gang = submitted(house)
    cluster_pass(house.cluster.id)
    first = gang.fresh
    cluster_pass(house.cluster.id)

    assert (first.explained_pass, gang.fresh.explained_pass) == (18205, 18206)
    assert gang.fresh.explanation == first.explanation


def test_who_holds_what_is_missing_is_named_in_the_own_workspace_only(house, machines):
    other = Workspace.objects.create(organization=house.organization, slug="audio", name="Audio")
    WorkspacePool.objects.create(workspace=other, pool=house.pool)
    placed(house, "mine")
    waiting = submitted(house, "waits")
    cluster_place(house.cluster.id)
    [row] = explanation_of(waiting.fresh)["machines"]
    assert row["text"].startswith("0 of 8 GPUs free, 8 needed; 8 held by mine; ")

    Run.objects.filter(name="waits").update(workspace=other)
    cluster_place(house.cluster.id)
    [row] = explanation_of(waiting.fresh)["machines"]
    assert row["text"].startswith("0 of 8 GPUs free, 8 needed; 8 held by another workspace; ")


def test_a_pool_that_the_workspace_may_not_use(house, machines):
    closed = Pool.objects.create(cluster=house.cluster, slug="closed", name="Closed")
    Machine.objects.filter(id=machines[1].id).update(pool=closed)
    gang = submitted(house)
    cluster_place(house.cluster.id)

    assert gang.fresh.state == "Pending"
    texts = [row["text"] for row in explanation_of(gang.fresh)["machines"]]
    assert any(text.startswith("In pool closed, which this workspace may not use") for text in texts)


def test_a_cluster_without_machines(house):
    gang = submitted(house)
    cluster_place(house.cluster.id)

    assert look(gang) == ("Pending", "This cluster has no machines.")


def test_a_storage_fabric_is_out_of_placement(house, machines):
    Fabric.objects.update(storage=True)
    gang = submitted(house)
    cluster_place(house.cluster.id)

    assert gang.fresh.state == "Pending"


def test_a_run_that_can_t_be_judged_is_set_aside_and_the_others_go_on(house, machines):
    broken = submitted(house, "broken")
    fine = submitted(house, "fine")
    Run.objects.filter(id=broken.run.id).update(document={"metadata": {"name": "broken"}})
    cluster_place(house.cluster.id)

    assert fine.fresh.state == "Starting"
    assert look(broken) == (
        "Pending",
        "The last pass could not judge this run; administrators see why. Other runs are not affected.",
    )
    assert broken.fresh.set_aside.startswith("SpecErrors: ")
    Run.objects.filter(id=broken.run.id).update(document=broken.run.document)
    cluster_place(house.cluster.id)
    assert broken.fresh.set_aside == ""
    assert "are needed" in look(broken)[1]


# --- Between load and apply ------------------------------------------------------------------------


def between_load_and_apply(monkeypatch, change) -> None:
    """Has `change` happen once, after a pass has decided and before it writes."""
    original, done = placement_apply, list[Any]()

    def changed(*arguments):
        if not done:
            done.append(change())
        return original(*arguments)

    monkeypatch.setattr(passes, "placement_apply", changed)


def test_a_machine_that_changed_meanwhile_stops_the_whole_gang(house, machines, monkeypatch):
    gang = submitted(house)
    between_load_and_apply(
        monkeypatch, lambda: Machine.objects.filter(id=machines[1].id).update(version=F("version") + 1)
    )
    cluster_pass(house.cluster.id)
    assert (gang.fresh.state, gang.fresh.attempt_no) == ("Pending", 0)
    assert (Assignment.objects.count(), Allocation.objects.count()) == (0, 0)
    assert gang.worker_states() == ["Pending", "Pending"]

    cluster_pass(house.cluster.id)
    assert gang.fresh.state == "Starting"


def test_a_run_stopped_meanwhile_is_not_placed(house, machines, monkeypatch):
    gang = submitted(house)
    between_load_and_apply(monkeypatch, lambda: Run.objects.update(wanted="stop"))
    cluster_pass(house.cluster.id)

    assert gang.fresh.state == "Pending"
    assert Assignment.objects.count() == 0


def test_a_pass_that_a_newer_one_overtook_writes_nothing(house, machines, monkeypatch):
    gang = submitted(house)
    between_load_and_apply(monkeypatch, lambda: Cluster.objects.update(pass_no=F("pass_no") + 1))
    cluster_pass(house.cluster.id)

    assert gang.fresh.state == "Pending"


@pytest.mark.django_db(transaction=True)
def test_of_two_passes_at_once_one_gets_the_lock_and_nothing_is_missed(house, empty_redis):
    """The second returns at once; what it was called for is seen by the first when it is through."""
    for name in ("gpu-01", "gpu-02"):
        factories.machine_make(house, name)
    empty_redis.delete(passes._dirty_key(house.cluster.id))
    started, go_on = threading.Event(), threading.Event()
    original = passes.cluster_pass

    def slow(cluster_id):
        original(cluster_id)
        started.set()
        assert go_on.wait(timeout=10)

    def first():
        try:
            passes.cluster_place(house.cluster.id)
        finally:
            connection.close()

    passes.cluster_pass = slow
    try:
        thread = threading.Thread(target=first)
        thread.start()
        assert started.wait(timeout=10)
        gang = submitted(house)  # after the first has looked
        passes.cluster_place(house.cluster.id)
        assert gang.fresh.state == "Pending", "the second pass did not get the lock"
        with cluster_lock(house.cluster.id) as mine:
            assert not mine
        go_on.set()
        thread.join(timeout=20)
    finally:
        passes.cluster_pass = original
    assert gang.fresh.state == "Starting", "the first looked again"
    with cluster_lock(house.cluster.id) as mine:
        assert mine, "the lock ends with the pass"


def test_the_sweep_queues_a_pass_for_clusters_with_waiting_runs(house, machines, empty_redis):
    clusters_sweep()
    assert empty_redis.llen("place") == 0
    submitted(house)
    clusters_sweep()
    assert empty_redis.llen("place") == 1


def test_without_redis_a_pass_runs_all_the_same(house, machines, monkeypatch):
    monkeypatch.setattr(passes, "client", lambda: nudge.connect("redis://127.0.0.1:1/0"))
    gang = submitted(house)
    begun = time.monotonic()
    cluster_place(house.cluster.id)

    assert gang.fresh.state == "Starting"
    assert time.monotonic() - begun < 2, "nobody waits for a Redis that is away"


def test_apply_rolls_back_everything_when_one_row_is_refused(house, machines, monkeypatch):
    """A GPU that something else took after all: the constraint speaks, nothing is half placed."""
    gang = submitted(house)

    def refuse(*_arguments, **_options):
        raise IntegrityError("gpu_held_once")

    monkeypatch.setattr(apply, "machines_revise", refuse)
    cluster_pass(house.cluster.id)
    assert (gang.fresh.state, gang.fresh.attempt_no) == ("Pending", 0)
    assert Assignment.objects.count() == 0
