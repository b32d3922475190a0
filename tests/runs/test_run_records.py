"""Records of passes: what is written and read again, what it costs, and how long they are kept."""

import os
from datetime import timedelta

import pytest
from django.utils import timezone

from machines.models import Machine, MachineLabel
from placement import Placement, Refusal, place
from placement.holdings import Hold
from runs.models import DecisionRecord, PassRecord, Run, TopologyRecord
from runs.scheduling.records import recall, recall_at, recall_placed
from runs.scheduling.retention import records_sweep
from runs.scheduling.snapshot import cluster_load
from tests import factories
from tests.runs.explained import waiting
from tests.runs.recorded import asked, one_pass, opened

pytestmark = pytest.mark.django_db
WHOLE = 8
CPU, MEMORY = 96_000, 800 * factories.GIB


def whole(machine):
    return Hold(machine, tuple(range(WHOLE)), CPU, MEMORY)


def judged(record_id, step, **more):
    return {
        "record": record_id,
        "step": step,
        "over_cap": [],
        "guaranteed": [],
        "behind": [],
        "claimed": [],
        "occupied": [],
        **more,
    }


# --- Written and read again ---------------------------------------------------------------------------


def test_a_refusal_is_had_again_with_all_that_the_pass_had_placed_before(house, three):
    first, second = waiting(house, "first"), waiting(house, "second")
    refusal, record_id = one_pass(house, first, second)
    Run.objects.filter(id=second.id).update(judged=judged(record_id, 1))

    found = recall(Run.objects.get(id=second.id))
    assert isinstance(found.answer, Refusal)
    assert found.answer.as_data() == refusal.as_data()
    assert (found.pass_no, found.snapshot.gpus_free.tolist()) == (18205, [0, 0, 8])


def test_without_the_steps_before_there_was_room(house, three):
    first, second = waiting(house, "first"), waiting(house, "second")
    _, record_id = one_pass(house, first, second)
    Run.objects.filter(id=second.id).update(judged=judged(record_id, 0))

    assert isinstance(recall(Run.objects.get(id=second.id)).answer, Placement)


def test_what_happens_to_the_cluster_later_changes_nothing(house, three):
    first, second = waiting(house, "first"), waiting(house, "second")
    refusal, _ = one_pass(house, first, second)
    Machine.objects.filter(cluster=house.cluster).update(cordoned_at=timezone.now())
    MachineLabel.objects.all().delete()

    found = recall_at(second, timezone.now())
    assert found.answer.as_data() == refusal.as_data()
    assert [rank.machine_name for rank in recall_placed(first).answer.ranks] == ["gpu-01", "gpu-02"]
    assert (recall_placed(first).placed, recall_placed(second)) == (True, None)


def test_a_judgement_is_in_force_until_the_next_one(house, three):
    run = waiting(house, "ddp-resnet50")
    for minutes, cordoned in ((30, 2), (20, 0)):
        Machine.objects.filter(name__in=["gpu-01", "gpu-02"][:cordoned]).update(cordoned_at=timezone.now())
        record = opened(house, pass_no=18300 - minutes)
        snapshot = cluster_load(house.cluster).snapshot
        record.decision(run.id, asked(run), place(snapshot, asked(run)), placed=cordoned == 0)
        record.close()
        at = timezone.now() - timedelta(minutes=minutes)
        DecisionRecord.objects.filter(record__pass_no=18300 - minutes).update(at=at)
        Machine.objects.update(cordoned_at=None)

    def then(minutes):
        found = recall_at(run, timezone.now() - timedelta(minutes=minutes))
        return found and found.placed

    assert [then(minutes) for minutes in (31, 29, 21, 19, 0)] == [None, False, False, True, True]


def test_what_is_claimed_is_closed_to_all_but_the_one_who_claimed_it(house, three):
    mine, other = waiting(house, "mine"), waiting(house, "other")
    record = opened(house)
    record.step_claim(mine.id, [whole("gpu-01"), whole("gpu-02")])
    record_id = record.close()
    Run.objects.update(judged=judged(record_id, 1))

    assert isinstance(recall(Run.objects.get(id=mine.id)).answer, Placement)
    assert recall(Run.objects.get(id=other.id)).snapshot.gpus_free.tolist() == [0, 0, 8]


def test_a_claim_ends_when_it_is_withdrawn(house, three):
    mine, other = waiting(house, "mine"), waiting(house, "other")
    record = opened(house)
    record.step_claim(mine.id, [whole("gpu-01")])
    record.step_claim(mine.id, [])
    Run.objects.update(judged=judged(record.close(), 2))

    assert recall(Run.objects.get(id=other.id)).snapshot.gpus_free.tolist() == [8, 8, 8]


def test_machines_that_are_reserved_for_those_that_go_first_are_closed(house, three):
    big, small = waiting(house, "big"), waiting(house, "small", gpus=8, machines=1)
    record = opened(house)
    record.step_reserve(big.id, ["gpu-03", "gpu-01", "gpu-02"], 1_800_000_000.0)
    Run.objects.update(judged=judged(record.close(), 1, behind=[big.id]))

    found = recall(Run.objects.get(id=small.id))
    assert found.answer.as_data()["cause"] == "machines_reserved"
    assert [(each.run_id, sorted(each.machines), each.at) for each in found.reserved] == [
        (big.id, ["gpu-01", "gpu-02", "gpu-03"], 1_800_000_000.0)
    ]


def test_a_run_that_no_pass_has_judged_yet_has_nothing_to_recall(house, three):
    run = waiting(house, "new")
    assert (recall(run), recall_at(run, timezone.now()), recall_placed(run)) == (None, None, None)
    run.judged = judged(4711, 0)
    assert recall(run) is None


# --- What it costs ------------------------------------------------------------------------------------


def test_a_pass_that_sees_the_same_reuses_the_record(house, three):
    run = waiting(house, "ddp-resnet50")
    first = opened(house).close()
    record = opened(house, pass_no=18206)
    record.decision(run.id, asked(run), place(cluster_load(house.cluster).snapshot, asked(run)), placed=False)

    assert record.close() == first
    assert PassRecord.objects.get().pass_no == 18205
    assert DecisionRecord.objects.get().record_id == first


def test_a_pass_that_sees_or_does_something_else_writes_its_own(house, three):
    ids = [opened(house).close()]
    Machine.objects.filter(name="gpu-01").update(cordoned_at=timezone.now())
    ids.append(opened(house, pass_no=18206).close())
    record = opened(house, pass_no=18207)
    record.step_reserve(1, ["gpu-01"], None)
    ids.append(record.close())

    assert len(set(ids)) == 3
    assert TopologyRecord.objects.count() == 1, "a cordon is no matter of the topology"


def test_a_topology_is_kept_once(house, three):
    opened(house).close()
    MachineLabel.objects.filter(machine=three[0]).update(value="r9")
    opened(house, pass_no=18206).close()
    MachineLabel.objects.filter(machine=three[0]).update(value="r1")
    opened(house, pass_no=18207).close()

    assert TopologyRecord.objects.count() == 2
    assert PassRecord.objects.count() == 3


def test_closing_costs_a_few_statements_however_many_decisions(house, three, django_assert_max_num_queries):
    run = waiting(house, "ddp-resnet50")
    record = opened(house)
    answer = place(cluster_load(house.cluster).snapshot, asked(run))
    for _ in range(50):
        record.decision(run.id, asked(run), answer, placed=False)
    with django_assert_max_num_queries(11):
        record.close()

    assert DecisionRecord.objects.count() == 50


def test_a_run_that_is_removed_meanwhile_keeps_no_decision(house, three):
    run = waiting(house, "ddp-resnet50")
    record = opened(house)
    record.decision(run.id, asked(run), place(cluster_load(house.cluster).snapshot, asked(run)), placed=False)
    run.delete()
    record.close()

    assert not DecisionRecord.objects.exists()


# --- How long ---------------------------------------------------------------------------------------------


def kept(house, run, count=1, *, days=0.0):
    """So many decisions, each with a record of its own."""
    snapshot = cluster_load(house.cluster).snapshot
    for _ in range(count):
        record = opened(house, pass_no=18205 + PassRecord.objects.count())
        record.step_reserve(PassRecord.objects.count(), ["gpu-01"], None)
        record.decision(run.id, asked(run), place(snapshot, asked(run)), placed=False)
        record_id = record.close()
        at = timezone.now() - timedelta(days=days)
        DecisionRecord.objects.filter(record=record_id).update(at=at)
    return record_id


def test_old_decisions_go_and_what_nothing_refers_to_goes_with_them(house, three, settings):
    run = waiting(house, "ddp-resnet50")
    kept(house, run, 2, days=settings.RECORDS_DAYS + 0.01)
    young = kept(house, run, days=settings.RECORDS_DAYS - 0.01)
    newest = opened(house, pass_no=18300).close()
    records_sweep()

    assert list(PassRecord.objects.order_by("id").values_list("id", flat=True)) == [young, newest]
    assert DecisionRecord.objects.get().record_id == young
    assert TopologyRecord.objects.count() == 1


def test_what_a_waiting_run_was_judged_by_stays(house, three):
    run = waiting(house, "ddp-resnet50")
    judged_by = opened(house).close()
    Run.objects.filter(id=run.id).update(judged=judged(judged_by, 0))
    kept(house, run)
    DecisionRecord.objects.all().delete()
    records_sweep()

    assert PassRecord.objects.filter(id=judged_by).exists()
    assert recall(Run.objects.get(id=run.id)) is not None


def test_of_one_run_the_newest_are_kept(house, three, settings):
    settings.RECORDS_PER_RUN = 3
    busy, quiet = waiting(house, "busy"), waiting(house, "quiet")
    kept(house, quiet)
    last = kept(house, busy, 5)
    records_sweep()

    assert DecisionRecord.objects.filter(run=quiet).count() == 1
    of_busy = DecisionRecord.objects.filter(run=busy)
    assert (of_busy.count(), of_busy.last().record_id) == (3, last)


def test_a_cluster_s_states_are_bounded_in_size(house, three, settings):
    run = waiting(house, "ddp-resnet50")
    last = kept(house, run, 6)
    Run.objects.filter(id=run.id).update(judged=judged(PassRecord.objects.order_by("id")[0].id, 0))
    PassRecord.objects.update(state=b"\0" + os.urandom(400_000))
    settings.RECORDS_MIB = 1
    records_sweep()

    left = PassRecord.objects.order_by("id")
    assert (left.count(), left.last().id) == (2, last)
    assert DecisionRecord.objects.count() == 2


def test_a_topology_without_records_goes(house, three):
    opened(house).close()
    MachineLabel.objects.filter(machine=three[0]).update(value="r9")
    opened(house, pass_no=18206).close()
    records_sweep()

    assert TopologyRecord.objects.count() == 1
    assert opened(house, pass_no=18207).close() == PassRecord.objects.get().id
