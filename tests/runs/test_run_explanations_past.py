"""Explanations of what was placed and of the past; what they cost, and what is left of them when something is wrong."""

from datetime import timedelta

import pytest
from django.utils import timezone

from common.errors import NotFound
from machines.models import Cluster, MachineLabel, WorkspacePool
from runs.explaining.history import history_words
from runs.explanations import explanation_of
from runs.models import Assignment, DecisionRecord, PassRecord, Run, RunWait
from runs.scheduling.passes import cluster_pass
from tests import factories
from tests.runs.explained import (
    RACK,
    cordoned,
    explained,
    fresh,
    holding,
    machines_told,
    waiting,
)

pytestmark = pytest.mark.django_db


# --- What was placed, and what is past ---------------------------------------------------------------------


def test_a_placed_run_tells_where_and_for_each_other_machine_why_not_there(house, three):
    cordoned("gpu-01")
    machine = factories.machine_make(house, "gpu-04", rack="r2")
    told = explained(waiting(house))

    assert (told["kind"], told["state"]) == ("placed", "Starting")
    assert told["headline"] == f"Placed on gpu-02 and gpu-03, {RACK}."
    assert machines_told(told) == [
        ("Chosen", "gpu-02", "Rank 0 with 8 GPUs"),
        ("Chosen", "gpu-03", "Rank 1 with 8 GPUs"),
        ("Usable, not chosen", machine.name, "8 of 8 GPUs free"),
        ("Cordoned", "gpu-01", "Cordoned by ops 2 d ago: “changing a cable”; 8 of 8 GPUs free"),
    ]
    group = told["placement"]["groups"][0]
    assert (told["placement"]["verdict"], group["rack"], group["fabric"]) == ("ib_rack", "r1", "ib-a")
    assert group["shape"] == {"machines": 2, "gpus": 8}
    assert (told["when"], told["changes"], told["queue"]) == (None, [], None)


def moved_back(minutes):
    """Moves all that is known into the past."""
    ago = timedelta(minutes=minutes)
    for record in DecisionRecord.objects.all():
        DecisionRecord.objects.filter(id=record.id).update(at=record.at - ago)
    for wait in RunWait.objects.all():
        until = wait.until and wait.until - ago
        RunWait.objects.filter(id=wait.id).update(since=wait.since - ago, until=until)


def test_what_was_judged_then_is_told_as_it_was_then(house, three):
    llm_7 = holding(house, "llm-7", three[0], three[1])
    hours_ago = timezone.now() - timedelta(hours=2)
    Assignment.objects.filter(attempt__run=llm_7).update(placed_at=hours_ago)
    run = waiting(house)
    cluster_pass(house.cluster.id)
    moved_back(30)
    factories.run_fail(llm_7.attempts.get())
    MachineLabel.objects.all().delete()
    cluster_pass(house.cluster.id)
    assert Run.objects.get(id=run.id).state == "Starting"
    then = timezone.now() - timedelta(minutes=20)
    told = explained(run, then, after_pass=False)

    assert (told["state"], told["kind"], told["cause"]) == ("Starting", "fit", "no_fabric_room")
    assert told["headline"] == (
        "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-03)."
    )
    assert told["pass"] == 18205
    assert machines_told(told) == [
        ("Ready for this run", "gpu-03", "8 of 8 GPUs free"),
        ("Too few free GPUs", "gpu-01, gpu-02", "0 of 8 GPUs free, 8 needed; 8 held by llm-7"),
    ]
    assert [(each["kind"], each["seconds"] // 60) for each in told["history"]] == [("fit", 10)]
    assert (told["changes"], told["when"], told["queue"]) == ([], None, None)
    now = explained(run, timezone.now(), after_pass=False)
    assert now["headline"] == "Placed on gpu-01 and gpu-02, one InfiniBand fabric."


def test_a_time_before_all_that_is_kept_is_refused_with_what_there_is(house, three):
    run = waiting(house)
    cluster_pass(house.cluster.id)
    oldest = DecisionRecord.objects.get().at
    with pytest.raises(NotFound) as refused:
        explained(run, timezone.now() - timedelta(days=1), after_pass=False)

    assert refused.value.message.startswith("No judgement of ddp-resnet50 is kept from before ")
    assert refused.value.message.endswith(f"; the oldest is from {oldest:%Y-%m-%d %H:%M:%S} UTC.")
    new = waiting(house, "new")
    with pytest.raises(NotFound, match=r"No judgement of new is kept\."):
        explained(new, timezone.now(), after_pass=False)


def test_the_history_tells_what_blocked_it_and_for_how_long(house, three):
    holding(house, "llm-7", three[0], three[1])
    run = waiting(house)
    cluster_pass(house.cluster.id)
    RunWait.objects.update(since=timezone.now() - timedelta(minutes=9))
    WorkspacePool.objects.update(gpu_cap=16)
    Run.objects.filter(name="llm-7").delete()
    told = explained(run)

    assert [(each["kind"], each["seconds"] // 60, each["until"] is None) for each in told["history"]] == [
        ("fit", 9, False)
    ]
    assert history_words(told["history"]) == "Waited 9 min: fit 9 min."


# --- What it costs -----------------------------------------------------------------------------------------


def test_between_two_passes_it_is_worked_out_once(house, three, django_assert_max_num_queries):
    holding(house, "llm-7", three[0], three[1])
    run = waiting(house)
    cluster_pass(house.cluster.id)
    run = fresh(run)
    with django_assert_max_num_queries(16):
        first = explanation_of(run)
    with django_assert_max_num_queries(2):  # the history and, every ten seconds, the database's clock
        again = explanation_of(run)
    assert again["machines"] == first["machines"]
    cordoned("gpu-03")
    assert "Cordoned" in str(explained(run)["machines"]), "never older than one pass"


def test_it_costs_the_same_number_of_queries_however_many_hold_something(
    house, django_assert_max_num_queries
):
    machines = [factories.machine_make(house, f"gpu-{number:02}") for number in range(12)]
    for number, machine in enumerate(machines[1:]):
        holding(house, f"llm-{number}", machine)
    run = waiting(house)
    cluster_pass(house.cluster.id)
    with django_assert_max_num_queries(16):
        explanation_of(Run.objects.select_related("workspace").get(id=run.id))


def test_every_pass_s_number_goes_with_what_it_says(house, three):
    holding(house, "llm-7", three[0], three[1])
    run = waiting(house)
    for number in (18205, 18206, 18207):
        assert explained(run)["pass"] == number
    assert Cluster.objects.get(id=house.cluster.id).pass_no == 18207
    assert DecisionRecord.objects.filter(run=run).count() == 1, "the cause was new once"


# --- When something is wrong --------------------------------------------------------------------------------


def test_a_record_of_another_release_costs_the_details_only(house, three):
    holding(house, "llm-7", three[0], three[1])
    run = waiting(house)
    cluster_pass(house.cluster.id)
    DecisionRecord.objects.update(request={"version": 99})
    PassRecord.objects.update(state=b"something else")
    told = explained(run, after_pass=False)

    assert told["headline"].startswith("2 machines with 8 free H100s on one fabric are needed")
    assert told["machines"] == []
    with pytest.raises(NotFound, match="What is kept of ddp-resnet50 from then can't be shown: "):
        explained(run, timezone.now(), after_pass=False)


def test_a_run_that_could_not_be_judged_is_not_told_what_was_so_before(house, three):
    holding(house, "llm-7", three[0], three[1])
    run = waiting(house)
    cluster_pass(house.cluster.id)
    Run.objects.filter(id=run.id).update(reason={"code": "set_aside"}, set_aside="ValueError: no")
    told = explained(run, after_pass=False)

    assert told["headline"].startswith("The last pass could not judge this run; administrators see why.")
    assert (told["machines"], told["changes"]) == ([], [])


def test_a_run_that_was_stopped_before_it_was_placed(house, three):
    run = waiting(house)
    Run.objects.filter(id=run.id).update(state="Stopped", reason={"code": "stopped", "by": "bea"})
    told = explained(run, after_pass=False)

    assert (told["kind"], told["headline"], told["placement"]) == ("", "Stopped by bea", None)


def test_an_edited_run_is_not_told_of_the_document_before(house, three):
    holding(house, "llm-7", three[0], three[1])
    run = waiting(house)
    assert explained(run)["machines"]
    Run.objects.filter(id=run.id).update(edition=run.edition + 1, judged=None)

    assert explained(run, after_pass=False)["machines"] == []
