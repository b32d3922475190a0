"""Records of passes: what is written, that a replay gives the same answer, and how long they are kept."""

import json
import os
from dataclasses import replace
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from machines.models import Cluster, Machine, MachineLabel, WorkspacePool
from placement import Placement, Refusal, place
from placement.holdings import Hold
from placement.record import answer_digest
from runs.models import DecisionRecord, PassRecord, Run, RunAttempt, TopologyRecord
from runs.scheduling.passes import cluster_pass
from runs.scheduling.records import (
    recall,
    recall_at,
    recall_decision,
    recall_placed,
    record_open,
)
from runs.scheduling.request import pools_allowed, request_of
from runs.scheduling.retention import records_sweep
from runs.scheduling.snapshot import cluster_load
from tests import factories
from wire.spec import validate_document

pytestmark = pytest.mark.django_db
WHOLE = 8
CPU, MEMORY = 96_000, 800 * factories.GIB


@pytest.fixture
def three(house):
    """gpu-01 to gpu-03: 8 H100s each on one fabric."""
    return [factories.machine_make(house, f"gpu-0{number}") for number in (1, 2, 3)]


def waiting(house, name, **shape):
    return factories.run_pending(house, name, document=factories.document_make(name, **shape))


def asked(run):
    return request_of(
        run, validate_document(run.document), pools_allowed(run.workspace_id, run.cluster_id), {}
    )


def opened(house, *, pass_no=18205):
    Cluster.objects.filter(id=house.cluster.id).update(pass_no=pass_no)
    cluster = Cluster.objects.get(id=house.cluster.id)
    return record_open(cluster, cluster_load(cluster).snapshot, timezone.now())


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


def one_pass(house, placed, refused):
    """A pass that places the one and then refuses the other; the refused one's answer and the record's id."""
    snapshot = cluster_load(house.cluster).snapshot
    record = opened(house)
    placement = place(snapshot, asked(placed))
    assert isinstance(placement, Placement)
    record.decision(placed.id, asked(placed), placement, placed=True)
    record.step_take(placement)
    refusal = place(snapshot.take(placement), asked(refused))
    record.decision(refused.id, asked(refused), refusal, placed=False)
    return refusal, record.close()


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


# --- manage.py replay_decision -----------------------------------------------------------------------------


def replayed(*arguments):
    out = StringIO()
    call_command("replay_decision", *arguments, stdout=out)
    return out.getvalue()


def test_a_replay_says_the_answer_and_that_it_is_the_same(house, three):
    one_pass(house, waiting(house, "first"), waiting(house, "second"))
    placed, refused = DecisionRecord.objects.order_by("id")

    head, answer, verdict = replayed(placed.id).splitlines()
    assert head == f"Record {placed.id}: first, {placed.at:%Y-%m-%d %H:%M:%S} UTC, pass 18,205, step 0"
    assert answer == "Placed on gpu-01 and gpu-02, one rack on one InfiniBand fabric."
    assert verdict == "Same answer."
    assert replayed(refused.id).splitlines()[1:] == [
        "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-03).",
        "Same answer.",
    ]


def test_the_last_ones_are_replayed_newest_first_also_for_programs(house, three):
    one_pass(house, waiting(house, "first"), waiting(house, "second"))
    told = [json.loads(line) for line in replayed("--last", "5", "--json").splitlines()]

    assert [(each["run"], each["placed"], each["same"], each["pass"]) for each in told] == [
        ("second", False, True, 18205),
        ("first", True, True, 18205),
    ]
    assert told[0]["digest_then"] == told[0]["digest_now"]


def test_a_replay_that_gives_another_answer_fails_and_shows_both(house, three):
    one_pass(house, waiting(house, "first"), waiting(house, "second"))
    record = DecisionRecord.objects.earliest("id")
    DecisionRecord.objects.filter(id=record.id).update(digest="0" * 64)
    out = StringIO()
    with pytest.raises(CommandError, match=f"Another answer than then: record {record.id}."):
        call_command("replay_decision", record.id, stdout=out)

    lines = out.getvalue().splitlines()
    assert lines[2] == "Another answer: this engine does not judge as the one that wrote the record."
    assert lines[3] == f"  then  a placement, digest {'0' * 64}"
    assert lines[4] == f"  now   a placement, digest {record.digest}"


def test_a_replay_of_nothing_says_what_there_is(house, three):
    with pytest.raises(CommandError, match=r"no decision record 12; none is kept yet\."):
        replayed(12)
    one_pass(house, waiting(house, "first"), waiting(house, "second"))
    newest = DecisionRecord.objects.latest("id").id
    with pytest.raises(CommandError, match=f"no decision record {newest + 7}; the newest is {newest}."):
        replayed(newest + 7)
    with pytest.raises(CommandError, match=r"Name one record, or say --last N\."):
        replayed()


def test_a_record_of_another_release_is_told_not_guessed(house, three):
    one_pass(house, waiting(house, "first"), waiting(house, "second"))
    record = DecisionRecord.objects.latest("id")
    DecisionRecord.objects.filter(id=record.id).update(request={**record.request, "version": 99})
    with pytest.raises(
        CommandError, match=f"Record {record.id} can't be repeated: A recorded request of version 99"
    ):
        replayed(record.id)


def test_every_decision_kept_repeats_itself(house, three):
    """The property that all of this is for, over requests of many kinds."""
    snapshot = cluster_load(house.cluster).snapshot
    record = opened(house)
    for number, (gpus, machines) in enumerate(((8, 1), (16, 2), (4, 1), (24, 3), (32, 4), (2, 1))):
        run = waiting(house, f"run-{number}", gpus=gpus, machines=machines)
        request = replace(asked(run), avoid={"gpu-02": 0.5}, over_cap=frozenset({"h200"}))
        answer = place(snapshot, request)
        record.decision(run.id, request, answer, placed=isinstance(answer, Placement))
        if isinstance(answer, Placement):
            record.step_take(answer)
            snapshot = snapshot.take(answer)
    record.close()

    assert replayed("--last", "10").count("Same answer.") == 6
    assert [recall_decision(each).placed for each in DecisionRecord.objects.all()] == [
        True, True, False, False, False, False,
    ]  # fmt: skip


def test_all_that_real_passes_decide_repeats_itself(house, three):
    """Placements, reservations, a cap, a preemption with its claims, and runs that never fit."""
    victim = factories.document_make("victim", gpus=8, machines=1, preemptible=True)
    factories.run_pending(house, "victim", document=victim)
    waiting(house, "holder", gpus=8, machines=1)
    cluster_pass(house.cluster.id)
    RunAttempt.objects.update(placed_at=timezone.now() - timedelta(hours=1))
    for name, options in (
        ("urgent", {"gpus": 16, "machines": 2, "priority": 50}),
        ("big", {"gpus": 24, "machines": 3, "priority": 20}),
        ("small", {"gpus": 8, "machines": 1}),
        ("huge", {"gpus": 64, "machines": 8}),
    ):
        factories.run_pending(house, name, document=factories.document_make(name, **options))
    cluster_pass(house.cluster.id)
    WorkspacePool.objects.update(gpu_cap=12)
    waiting(house, "over", gpus=4, machines=1)
    cluster_pass(house.cluster.id)

    steps = [step for record in PassRecord.objects.all() for step in record.steps]
    assert {name for step in steps for name in step} == {"take", "claim", "reserve"}
    count = DecisionRecord.objects.count()
    assert count >= 7
    assert replayed("--last", str(count)).count("Same answer.") == count
    compared = 0
    for run in Run.objects.waiting():
        last = run.decisions.last()
        if (last.record_id, last.step) == (run.judged["record"], run.judged["step"]):
            assert answer_digest(recall(run).answer) == last.digest, run.name
            compared += 1
    assert compared >= 3, "what a page recalls is what the pass decided"
