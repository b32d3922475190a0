"""`manage.py replay_decision`: what was recorded of a pass gives the same answer again."""

import json
from dataclasses import replace
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from machines.models import WorkspacePool
from placement import Placement, place
from placement.record import answer_digest
from runs.models import DecisionRecord, PassRecord, Run, RunAttempt
from runs.scheduling.passes import cluster_pass
from runs.scheduling.records import recall, recall_decision
from runs.scheduling.snapshot import cluster_load
from tests import factories
from tests.runs.explained import waiting
from tests.runs.recorded import asked, one_pass, opened

pytestmark = pytest.mark.django_db


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
