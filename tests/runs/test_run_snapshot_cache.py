"""The kept snapshot is always the one that would be read anew."""

import threading
from collections.abc import Collection
from datetime import timedelta
from unittest.mock import Mock

import psycopg
import pytest
from django.db import connection, transaction
from django.utils import timezone

from common.clock import database_now
from machines.changes import KEPT, changes_prune
from machines.models import Cluster, Gpu, Machine, MachineChange, Pool, RdmaPort
from runs.models import Allocation, Claim
from runs.scheduling import snapshot
from runs.scheduling.rows import Rows, rows_load
from runs.scheduling.snapshot import Loaded, cluster_snapshot
from tests import factories
from tests.runs.kept import elsewhere, keep_nothing, now, only_patch, stale, world_make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    keep_nothing(monkeypatch)


@pytest.fixture
def only_patched(monkeypatch):
    only_patch(monkeypatch)


@pytest.fixture
def fleet(house, machines) -> list[Machine]:
    return world_make(house, machines).fleet


@pytest.mark.usefixtures("only_patched")
def test_nothing_new_is_the_very_same_snapshot(house, fleet, django_assert_num_queries):
    first = now(house)
    with django_assert_num_queries(3):  # BEGIN, what changed, COMMIT
        second = cluster_snapshot(house.cluster)

    assert second.snapshot is first.snapshot
    assert second.names is first.names


@pytest.mark.usefixtures("only_patched")
def test_a_refresh_takes_the_same_queries_whatever_has_changed(
    house, fleet, django_assert_num_queries, monkeypatch
):
    now(house)
    cursors = Mock(wraps=psycopg.Cursor)
    monkeypatch.setattr("runs.scheduling.rows.psycopg.Cursor", cursors)
    for change in (
        lambda: Machine.objects.filter(id=fleet[3].id).update(name="a"),
        lambda: Machine.objects.update(cpu_cores=3),
        lambda: Allocation.objects.update(released_at=timezone.now()),
    ):
        change()
        cursors.reset_mock()
        with django_assert_num_queries(3):  # BEGIN, what changed, COMMIT
            cluster_snapshot(house.cluster)
        assert cursors.call_count == 1  # psycopg's own: Django does not count what it executes


@pytest.mark.usefixtures("only_patched")
def test_what_placement_does_not_see_leaves_no_note(house, fleet):
    now(house)
    MachineChange.objects.all().delete()
    Machine.objects.update(
        last_seen_at=timezone.now(),
        sequence=5,
        desired_revision=9,
        applied_revision=9,
        observed_digest="x",
        kernel="6",
    )
    Gpu.objects.update(evidence="all is well")
    Allocation.objects.update(created_at=timezone.now())

    assert not MachineChange.objects.exists()


def test_a_statement_notes_each_machine_once(house, fleet):
    MachineChange.objects.all().delete()
    RdmaPort.objects.filter(machine__in=fleet[:2]).update(state="DOWN")

    assert sorted(MachineChange.objects.values_list("cluster_id", "machine_id")) == [
        (house.cluster.id, fleet[0].id),
        (house.cluster.id, fleet[1].id),
    ]


@pytest.mark.usefixtures("only_patched")
def test_of_machines_that_are_only_used_differently_no_hardware_is_read(house, fleet, monkeypatch):
    read: list[tuple[Collection[int] | None, Collection[int]]] = []

    def load(
        cluster_id: int, machine_ids: Collection[int] | None = None, *, used: Collection[int] = ()
    ) -> Rows:
        read.append((machine_ids, used))
        return rows_load(cluster_id, machine_ids, used=used)

    monkeypatch.setattr(snapshot, "rows_load", load)
    topology = now(house).snapshot.topology
    read.clear()
    Machine.objects.filter(id=fleet[0].id).update(cordoned_at=timezone.now())
    Allocation.objects.filter(machine=fleet[1]).update(released_at=timezone.now())
    assert now(house).snapshot.topology is topology
    Machine.objects.filter(id=fleet[0].id).update(cordoned_at=None, cpu_cores=5)
    Gpu.objects.filter(machine=fleet[1]).update(health="suspect")
    now(house)

    assert [each for each in read if each[0] is not None] == [
        (frozenset(), {fleet[0].id, fleet[1].id}),
        ({fleet[0].id, fleet[1].id}, frozenset()),
    ]


def test_claims_are_noted(house, fleet):
    run = factories.run_pending(house, "next")
    MachineChange.objects.all().delete()
    Claim.objects.create(run=run, machine=fleet[0], gpu=fleet[0].gpus.all()[0])
    run.claims.all().delete()

    assert list(MachineChange.objects.values_list("machine_id", flat=True)) == [fleet[0].id] * 2


@pytest.mark.usefixtures("only_patched")
def test_a_transaction_that_commits_late_is_seen_once_it_has(house, fleet):
    now(house)
    with elsewhere() as execute:
        execute("UPDATE machines_machine SET cpu_cores = 5 WHERE id = %s", [fleet[0].id])
        Machine.objects.filter(id=fleet[1].id).update(cpu_cores=6)
        assert now(house).snapshot.topology.cpu_total.tolist() == [96_000, 6_000, 96_000, 96_000]
        Machine.objects.filter(id=fleet[2].id).update(cpu_cores=7)
        now(house)

    assert now(house).snapshot.topology.cpu_total.tolist() == [5_000, 6_000, 7_000, 96_000]


@pytest.mark.usefixtures("only_patched")
def test_what_was_rolled_back_was_never_there(house, fleet):
    before = now(house)
    with transaction.atomic():
        Machine.objects.update(cpu_cores=1)
        assert cluster_snapshot(house.cluster).snapshot.topology.cpu_total.tolist() == [1_000] * 4
        transaction.set_rollback(True)

    assert now(house).snapshot is before.snapshot


@pytest.mark.usefixtures("only_patched")
def test_a_caller_may_change_its_versions(house, fleet):
    now(house).versions[fleet[0].id] = 99

    now(house)


@pytest.mark.usefixtures("only_patched")
def test_changes_of_another_cluster_are_none_of_ours(house, fleet):
    other = Cluster.objects.create(organization=house.organization, slug="other", name="Other")
    pool = Pool.objects.create(cluster=other, slug="p", name="P")
    before = now(house)
    machine = Machine.objects.create(cluster=other, pool=pool, name="gpu-01", runtime="bubblewrap")

    assert now(house).snapshot is before.snapshot
    assert cluster_snapshot(other).names == {machine.id: "gpu-01"}


def test_everything_is_read_anew_after_a_minute_by_the_databases_clock(house, fleet, monkeypatch):
    now(house)
    Machine.objects.filter(id=fleet[0].id).update(cpu_cores=5)
    MachineChange.objects.all().delete()
    assert stale(house), "nothing tells of this change any more"

    monkeypatch.setattr(snapshot, "WHOLE_FOR", timedelta(0))
    assert not stale(house)


@pytest.mark.parametrize("counted_from", ["an older backup", "a clock that stood later"])
def test_a_database_that_was_restored_is_read_anew(house, fleet, counted_from):
    now(house)
    Machine.objects.filter(id=fleet[0].id).update(cpu_cores=5)
    MachineChange.objects.all().delete()
    cache = snapshot._kept.of(house.cluster.id)
    visible, at = cache.read.visible, cache.read.whole_at
    if counted_from == "an older backup":
        visible = "900000000:900000000:"
    else:
        at += timedelta(hours=1)
    cache.read = snapshot._Read(cache.read.loaded, visible, at)

    assert not stale(house)


def test_when_much_has_changed_all_is_read(house, fleet, monkeypatch):
    read: list[Collection[int] | None] = []

    def load(cluster_id: int, machine_ids: Collection[int] | None = None, **used: Collection[int]) -> Rows:
        read.append(machine_ids)
        return rows_load(cluster_id, machine_ids, **used)

    monkeypatch.setattr(snapshot, "rows_load", load)
    cluster_snapshot(house.cluster)
    Machine.objects.filter(id=fleet[0].id).update(cpu_cores=5)
    cluster_snapshot(house.cluster)
    Machine.objects.filter(id__in=[fleet[0].id, fleet[1].id]).update(cpu_cores=6)
    cluster_snapshot(house.cluster)

    assert read == [None, {fleet[0].id}, None]


def test_threads_share_one_snapshot(house, fleet):
    """Readers beside a writer: whatever each of them saw last, the end is the same for all."""
    found: list[Loaded] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            cluster_snapshot(house.cluster)
        found.append(cluster_snapshot(house.cluster))
        connection.close()

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for cores in range(20):
        Machine.objects.filter(id=fleet[cores % 4].id).update(cpu_cores=cores)
    stop.set()
    for thread in threads:
        thread.join(timeout=30)

    assert [loaded.snapshot.topology.cpu_total.tolist() for loaded in found] == [
        [16_000, 17_000, 18_000, 19_000]
    ] * 4
    assert len({id(loaded.versions) for loaded in found}) == 4


def test_the_cluster_that_was_not_asked_for_longest_makes_room(house, monkeypatch):
    monkeypatch.setattr(snapshot, "MOST_CLUSTERS", 2)
    others = [Cluster.objects.create(organization=house.organization, slug=slug, name=slug) for slug in "ab"]
    for cluster in (others[0], house.cluster, others[0], others[1]):
        cluster_snapshot(cluster)

    assert list(snapshot._kept.clusters) == [others[0].id, others[1].id]


def test_old_notes_are_removed(house, fleet):
    MachineChange.objects.all().update(at=database_now() - KEPT - timedelta(seconds=1))
    Machine.objects.filter(id=fleet[0].id).update(cpu_cores=5)
    changes_prune()

    assert list(MachineChange.objects.values_list("machine_id", flat=True)) == [fleet[0].id]
    assert KEPT > 2 * snapshot.WHOLE_FOR, "whoever reads notes has read everything not long before they went"
