"""Workers that start on their own: placed, failing and ending one by one, and one run to those who look at it."""

import threading
from datetime import timedelta
from functools import partial

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from machines.services import machine_cordon
from runs.editing import run_change
from runs.explanations import explanation_of
from runs.gang.apply import attempts_sweep, run_advance
from runs.models import Allocation, LogChunk, Reservation, Run, RunAttempt, RunEvent, Worker, WorkloadName
from runs.presentation import run_present
from runs.scheduling.passes import cluster_pass
from runs.scheduling.records import recall
from runs.services import run_delete, run_remove, run_restart, run_stop, runs_sweep_deleted
from tests import factories
from tests.support.families import Family, independent, sweep
from tests.support.gangs import CRASH, SUCCESS, Gang, back_off_over, placed
from wire.agent_messages import Exit

pytestmark = pytest.mark.django_db

STOPPED = Exit(kind="stopped", signal=15)


# --- Starting ------------------------------------------------------------------------------------


def test_each_worker_starts_as_soon_as_there_is_room_for_it(house, machines):
    family = independent(house, workers=3)
    assert family.states() == ["Starting", "Starting", "Pending"]
    assert family.shown() == ("Starting", "2 of 3 workers starting, 1 waits")

    family.start(0)
    assert family.shown() == ("Running", "1 of 3 workers running, 1 starting, 1 waits")
    family.alone(0).end(0, SUCCESS)
    assert family.advance() == ("Starting", "1 of 3 workers starting, 1 succeeded, 1 waits")

    assert family.pass_over() == ("Starting", "2 of 3 workers starting, 1 succeeded")
    family.start(1, 2)
    for rank in (1, 2):
        family.alone(rank).end(0, SUCCESS)
    assert family.advance() == ("Succeeded", "3 of 3 workers succeeded")
    assert Allocation.objects.filter(released_at=None).count() == 0
    assert family.fresh.ended_at is not None


def test_two_workers_never_share_a_machine_however_much_room_there_is(house, machines):
    family = independent(house, workers=3, gpus=2)
    assert sorted(filter(None, family.machines())) == ["gpu-01", "gpu-02"]
    third = family.workers[2].run
    assert (third.state, third.wait_kind) == ("Pending", "fit")

    cluster_pass(house.cluster.id)
    told = explanation_of(family.displayed())
    assert [row["text"] for row in told["machines"]] == ["Already has a worker of this run; 6 of 8 GPUs free"]
    assert told["machines"][0]["machines"] == ["gpu-01", "gpu-02"]

    family.start(0).alone(0).end(0, SUCCESS)
    family.pass_over()
    assert family.states() == ["Succeeded", "Starting", "Starting"]
    assert family.machines()[2] == family.machines()[0], "it is free of the run again"


def test_a_machine_of_a_worker_that_may_still_be_there_is_not_used_by_another(house, machines):
    """Its own attempt is over for the console, its processes may not be."""
    family = independent(house, workers=2, gpus=2).start(0, 1)
    family.alone(0).end(0, CRASH, gone=False)
    family.advance()
    assert family.states() == ["Stopping", "Running"]
    factories.machine_make(house, "gpu-03")
    family.pass_over()
    assert family.states() == ["Stopping", "Running"]


def test_the_record_of_a_pass_gives_the_same_judgement_of_a_worker(house, machines):
    family = independent(house, workers=3, gpus=2)
    cluster_pass(house.cluster.id)
    recalled = recall(family.workers[2].run)
    assert recalled is not None
    assert recalled.request.occupied == {"gpu-01", "gpu-02"}


def test_a_run_that_can_have_no_more_machines_is_never_told_that_it_is_impossible(house, machines):
    independent(house, workers=3, gpus=2)
    cluster_pass(house.cluster.id)
    assert not Run.objects.filter(wait_kind="never").exists()


def test_workers_that_wait_for_their_own_run_keep_no_machine_from_others(house, machines):
    independent(house, workers=3, gpus=2)
    other = factories.run_pending(
        house, "other", document=factories.document_make("other", gpus=6, machines=1)
    )
    cluster_pass(house.cluster.id)
    assert Gang(other).fresh.state == "Starting"
    assert Reservation.objects.count() == 0


# --- Failure -------------------------------------------------------------------------------------


def test_restart_task_restarts_the_one_that_failed_and_no_other(house, machines):
    family = independent(house, workers=2).start(0, 1)
    family.alone(1).end(0, CRASH)
    assert family.advance() == ("Running", "1 of 2 workers running, 1 waits")
    assert [worker.run.restarts for worker in family.workers] == [0, 1]
    assert family.alone(0).phases() == ["start"]
    sentence = "sweep-1: Attempt 1 failed (sweep-1 on gpu-02: code 1). Attempt 2 is queued in 10 s."
    assert ("Pending", sentence) in family.history()
    told = family.workers[1].events.filter(state="Pending").get()
    assert told.reason["code"] == "restarting", "its own history says why it waits again"

    back_off_over(family.alone(1))
    assert family.pass_over() == ("Running", "1 of 2 workers running, 1 starting")
    family.start(1)
    env = family.alone(1).members[0].launch["env"]
    assert (env["ASTRAEUS_ATTEMPT"], env["SLURM_RESTART_COUNT"]) == ("2", "1")
    status = run_present(family.displayed())["status"]
    assert (status["attempt"], status["restarts"]) == (2, 1)


def test_a_worker_that_has_used_up_its_restarts_fails_the_run_and_the_others_are_stopped(house, machines):
    family = independent(house, workers=3, max_restarts=0).start(0, 1)
    family.alone(1).end(0, CRASH)
    assert family.advance() == ("Stopping", "2 of 3 workers ended")
    assert family.states() == ["Stopping", "Failed", "Stopped"], "the one that waited left the queue at once"

    family.alone(0).end(0, STOPPED)
    assert family.advance() == ("Failed", "sweep-1 on gpu-02: code 1")
    assert family.states() == ["Stopped", "Failed", "Stopped"]
    assert Allocation.objects.filter(released_at=None).count() == 0


def test_fail_job_stops_all_at_the_first_failure(house, machines):
    family = independent(house, workers=2, on_failure="FailJob", max_restarts=3).start(0, 1)
    family.alone(0).end(0, CRASH)
    assert family.advance()[0] == "Stopping"
    family.alone(1).end(0, STOPPED)
    assert family.advance() == ("Failed", "sweep-0 on gpu-01: code 1")


def test_restart_job_queues_all_anew_and_counts_once(house, machines):
    family = independent(house, workers=3, on_failure="RestartJob", max_restarts=1).start(0, 1)
    family.alone(0).end(0, SUCCESS)
    family.alone(1).end(0, CRASH)
    state, reason = family.advance()
    assert (state, reason) == (
        "Pending",
        "Attempt 1 failed (sweep-1 on gpu-02: code 1). Attempt 2 is queued in 10 s.",
    ), "nothing of it was left to be stopped"
    assert family.states() == ["Pending"] * 3, "the one that had succeeded too"
    assert {worker.state for worker in family.workers} == {"Pending"}
    assert (family.fresh.restarts, {worker.run.restarts for worker in family.workers}) == (1, {1})
    begins = [worker.run.not_before for worker in family.workers]
    assert all(at is not None and at > timezone.now() for at in begins)

    Run.objects.filter(parent=family.run).update(not_before=None)
    assert family.pass_over() == ("Starting", "2 of 3 workers starting, 1 waits")
    attempts = [family.alone(rank).members[0].launch["env"]["ASTRAEUS_ATTEMPT"] for rank in (0, 1)]
    assert attempts == ["2", "2"]
    family.start(0, 1)
    family.alone(1).end(0, CRASH)
    family.advance()
    family.alone(0).end(0, STOPPED)
    assert family.advance() == ("Failed", "Failed after 1 restart: sweep-1 on gpu-02: code 1")


def test_ten_minutes_of_running_begin_the_count_anew(house, machines):
    family = independent(house, workers=2, on_failure="RestartJob", max_restarts=1).start(0, 1)
    Run.objects.filter(parent=family.run).update(restarts=1, backoff_step=1)
    RunAttempt.objects.filter(run__parent=family.run).update(
        running_at=F("running_at") - timedelta(minutes=11)
    )
    family.alone(1).end(0, CRASH)
    family.advance()
    family.alone(0).end(0, STOPPED)
    assert family.advance()[1].endswith("Attempt 2 is queued in 10 s.")
    assert family.fresh.restarts == 1


def test_the_time_limit_is_each_worker_s_own(house, machines):
    document = sweep("short", workers=2)
    document["spec"]["task_template"]["time_limit_seconds"] = 60
    family = Family(factories.run_pending(house, "short", document=document))
    family.pass_over()
    family.start(0, 1)
    past = timedelta(seconds=61)
    RunAttempt.objects.filter(run=family.workers[0].run).update(
        opened_at=F("opened_at") - past, time_limit_at=F("time_limit_at") - past
    )
    attempts_sweep()
    assert family.states() == ["Stopping", "Running"]
    family.alone(0).end(0, Exit(kind="time_limit", signal=15))
    assert family.advance()[0] == "Stopping"
    family.alone(1).end(0, STOPPED)
    assert family.advance() == ("Failed", "short-0: Time limit of 1 min reached")


def test_a_worker_that_never_gets_to_run_fails_the_run_even_with_restart_job(house, machines):
    missing = Exit(kind="not_started", message="The command `nosuch` was not found in the image.")
    family = independent(house, workers=1, on_failure="RestartJob")
    for _ in range(3):
        family.alone(0).end(0, missing)
        family.advance()
        Run.objects.filter(parent=family.run).update(not_before=None)
        family.pass_over()
    state, reason = family.shown()
    assert state == "Failed"
    assert reason.startswith("sweep-0: 3 attempts in a row never ran. sweep-0 on gpu-0")


def test_restart_task_of_a_gang_of_one_restarts_it(house, machines):
    gang = placed(house, "solo", machines=1, on_failure="RestartTask").start()
    gang.end(0, CRASH)
    assert gang.advance()[0] == "Pending"
    assert gang.fresh.restarts == 1


# --- Owners --------------------------------------------------------------------------------------


def test_stop_reaches_every_worker(house, machines, bea):
    family = independent(house, workers=3).start(0, 1)
    run_stop(run=family.run, actor=bea)
    assert family.advance() == ("Stopping", "1 of 3 workers ended")
    assert (family.alone(0).phases(), family.alone(1).phases()) == (["stop"], ["stop"])
    for rank in (0, 1):
        family.alone(rank).end(0, STOPPED)
    assert family.advance() == ("Stopped", "Stopped by bea")
    assert [worker.state for worker in family.workers] == ["Stopped"] * 3


def test_one_that_waits_as_a_whole_stops_at_once(house, bea):
    family = independent(house, workers=2)
    run_stop(run=family.run, actor=bea)
    run_advance(family.run.id)
    assert family.shown() == ("Stopped", "Stopped by bea")
    assert [state for state, _ in family.history()] == ["Pending", "Stopped"]
    assert not Run.objects.waiting().exists()


def test_delete_removes_all_of_it_when_nothing_may_run_any_more(house, machines, bea):
    family = independent(house, workers=2).start(0, 1)
    factories.log_write(family.alone(0).members[0], b"hello\n")
    run_delete(run=family.run, actor=bea)
    assert not run_remove(family.run.id)
    family.advance()
    assert not run_remove(family.run.id), "its workers still hold their machines"
    for rank in (0, 1):
        family.alone(rank).end(0, STOPPED)
    family.advance()
    runs_sweep_deleted()
    for rows in (Run, Worker, RunAttempt, WorkloadName, LogChunk, RunEvent):
        assert rows.objects.count() == 0, rows


def test_restart_of_a_run_that_runs_ends_every_attempt_and_queues_all(house, machines, bea):
    family = independent(house, workers=2).start(0, 1)
    run_restart(run=family.run, actor=bea)
    family.advance()
    family.alone(0).end(0, STOPPED)
    assert family.advance() == ("Stopping", "1 of 2 workers ended")
    family.alone(1).end(0, STOPPED)
    assert family.advance() == ("Pending", "Restarted by bea")
    assert (family.fresh.restart_asked, family.fresh.restarts) == (False, 0)
    assert family.pass_over() == ("Starting", "2 of 2 workers starting")
    assert family.alone(0).fresh.attempt_no == 2


def test_restart_of_a_run_that_has_ended(house, machines, bea):
    family = independent(house, workers=1).start(0)
    family.alone(0).end(0, SUCCESS)
    assert family.advance()[0] == "Succeeded"
    run_restart(run=family.run, actor=bea)
    assert family.shown() == ("Pending", "Restarted by bea")
    assert family.pass_over() == ("Starting", "1 of 1 worker starting")


def test_a_changed_priority_reaches_the_queue(house, machines, bea):
    holder = placed(house, "holder")
    family = independent(house, workers=1)
    run_change(run=family.run, actor=bea, labels={"seed": "1"}, priority=7)
    [worker] = family.workers
    assert (worker.run.priority, worker.run.document["spec"]["priority"]) == (7, 7)
    assert family.fresh.labels["seed"] == "1"
    assert holder.fresh.priority == 0


def test_a_worker_may_be_preempted_and_the_others_go_on(house, machines):
    family = independent(house, workers=2, preemptible=True).start(0, 1)
    RunAttempt.objects.update(placed_at=F("placed_at") - timedelta(hours=1))
    urgent = factories.run_pending(
        house, "urgent", document=factories.document_make("urgent", gpus=8, machines=1, priority=10)
    )
    cluster_pass(house.cluster.id)
    stopped = [worker for worker in family.workers if worker.run.preemption]
    assert len(stopped) == 1
    gang = family.alone(stopped[0].rank)
    gang.advance()
    gang.end(0, STOPPED)
    assert family.advance() == ("Running", "1 of 2 workers running, 1 waits")
    cluster_pass(house.cluster.id)
    assert Gang(urgent).fresh.state == "Starting"
    assert family.fresh.restarts == 0


# --- Nothing is lost, nothing done twice ---------------------------------------------------------


def test_the_sweep_gathers_what_a_lost_nudge_would_have(house, machines):
    family = independent(house, workers=2)
    for rank in (0, 1):
        family.alone(rank).start()
    assert family.fresh.state == "Starting"
    attempts_sweep()
    assert family.shown() == ("Running", "2 of 2 workers running")


def test_the_sweep_leaves_a_run_alone_of_which_nothing_is_new(house, machines, django_assert_max_num_queries):
    independent(house, workers=2).start(0, 1)
    with django_assert_max_num_queries(3):  # gangs that are due, children by state, their runs
        attempts_sweep()


def test_cordoned_machines_keep_one_worker_waiting_only(house, machines):
    machine_cordon(machine=machines[1], actor=factories.actor_of(house.ana), reason="cable")
    family = independent(house, workers=2)
    assert family.states() == ["Starting", "Pending"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("on_failure", ["RestartTask", "RestartJob", "FailJob"])
def test_a_worker_fails_while_the_run_is_being_deleted(house, on_failure):
    """Whoever comes first: all of it goes, and nothing starts again."""
    for name in ("gpu-01", "gpu-02"):
        factories.machine_make(house, name)
    bea = factories.actor_of(house.bea)
    for number in range(4):
        family = independent(house, f"round-{number}", workers=3, on_failure=on_failure).start(0, 1)
        together(
            partial(fail_and_look, family),
            partial(delete_and_look, family, bea),
            partial(look, house, family),
        )
        for rank in (0, 1):
            gang = family.alone(rank)
            if gang.fresh.state not in {"Stopped", "Failed", "Pending"}:
                gang.end(0, STOPPED)
        state, _ = family.advance()
        assert state == "Stopped", f"round {number}"
        assert run_remove(family.run.id)
    assert Run.objects.count() == 0
    assert Allocation.objects.count() == 0


def fail_and_look(family: Family) -> None:
    gang = family.alone(0)
    gang.end(0, CRASH)
    gang.advance()
    run_advance(family.run.id)


def delete_and_look(family: Family, bea) -> None:
    run_delete(run=family.run, actor=bea)
    run_advance(family.run.id)


def look(house, family: Family) -> None:
    cluster_pass(house.cluster.id)
    run_advance(family.run.id)


def together(*works) -> None:
    """Runs all of them at the same moment, each in a thread with a connection of its own."""
    barrier, errors = threading.Barrier(len(works)), []

    def body(work) -> None:
        try:
            barrier.wait(timeout=10)
            work()
        except Exception as error:  # noqa: BLE001 - handed over to the test
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=body, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert errors == []
