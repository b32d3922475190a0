"""A gang's life through the real services: reports in, decisions out, rows as witnesses."""

import threading
from datetime import timedelta
from functools import partial

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from machines.models import Machine
from runs.gang.apply import attempts_sweep, run_advance
from runs.models import Allocation, Run, RunAttempt, RunEvent
from runs.reasons import word
from runs.services import run_restart, run_stop
from tests import factories
from tests.support.gangs import CRASH, SUCCESS, Gang, back_off_over, placed, replaced
from wire.agent_messages import Exit

pytestmark = pytest.mark.django_db


def history(run: Run) -> list[tuple[str, str]]:
    return [(event.state, word(event.reason)) for event in RunEvent.objects.filter(run=run)]


def test_a_gang_from_the_queue_to_success(gang):
    gang.say(0, "ready")
    assert gang.advance() == ("Starting", "Starting together: 1 of 2 ready")
    assert gang.phases() == ["prepare", "prepare"]

    gang.say(1, "ready")
    assert gang.advance() == ("Starting", "All 2 workers ready: starting")
    assert gang.phases() == ["start", "start"]

    gang.say(0, "running")
    assert gang.advance() == ("Starting", "All 2 workers ready: starting")
    gang.say(1, "running")
    assert gang.advance() == ("Running", "2 of 2 workers running")

    gang.end(0, SUCCESS)
    assert gang.advance() == ("Running", "1 of 2 workers running, 1 succeeded")
    gang.end(1, SUCCESS)
    assert gang.advance() == ("Succeeded", "2 of 2 workers succeeded")

    assert gang.worker_states() == ["Succeeded", "Succeeded"]
    assert gang.held() == 0
    assert history(gang.run) == [
        ("Pending", "Queued; the next pass is due within seconds"),
        ("Starting", "Starting together: 0 of 2 ready"),
        ("Starting", "All 2 workers ready: starting"),
        ("Running", "2 of 2 workers running"),
        ("Succeeded", "2 of 2 workers succeeded"),
    ]


def test_a_single_worker_needs_no_barrier(house, machines):
    gang = placed(house, "solo", machines=1, on_failure="FailJob")

    assert gang.shown() == ("Starting", "Starting: preparing")
    gang.say(0, "ready")
    gang.advance()
    assert gang.phases() == ["start"]
    gang.say(0, "running")
    assert gang.advance() == ("Running", "1 of 1 workers running")


def test_the_barrier_stays_shut_while_a_ready_member_is_unreachable(gang, machines):
    gang.all_say("ready")
    machines[1].unreachable_at = timezone.now()
    machines[1].save()
    assert gang.advance() == ("Starting", "Starting together: 2 of 2 ready")
    assert gang.phases() == ["prepare", "prepare"]

    machines[1].unreachable_at = None
    machines[1].save()
    gang.advance()
    assert gang.phases() == ["start", "start"]


def test_opening_moves_the_desired_revision_of_both_machines(gang, machines):
    before = [machine_revision(machine) for machine in machines]
    gang.all_say("ready")
    gang.advance()

    assert [machine_revision(machine) for machine in machines] == [number + 1 for number in before]


def machine_revision(machine: Machine) -> int:
    return Machine.objects.get(id=machine.id).desired_revision


# --- Failure -----------------------------------------------------------------------------------------


def test_restart_job_runs_both_again_as_attempt_2(running, machines):
    running.end(1, CRASH)
    assert running.advance() == ("Stopping", "1 of 2 workers ended")
    assert running.phases() == ["stop", "start"], "the one that is gone needs no order"
    assert running.held() > 0, "worker 0 still holds its GPUs"

    running.end(0, Exit(kind="stopped", signal=15))
    sentence = "Attempt 1 failed (ddp-resnet50-1 on gpu-02: code 1). Attempt 2 is queued in 10 s."
    assert running.advance() == ("Pending", sentence)
    assert running.worker_states() == ["Pending", "Pending"]
    assert running.held() == 0
    assert running.fresh.restarts == 1

    back_off_over(running)
    replaced(running)
    assert running.fresh.attempt_no == 2
    assert [member.launch["env"]["ASTRAEUS_ATTEMPT"] for member in running.members] == ["2", "2"]
    assert [member.launch["env"]["SLURM_RESTART_COUNT"] for member in running.members] == ["1", "1"]
    running.start()
    assert running.shown() == ("Running", "2 of 2 workers running")
    assert [text for state, text in history(running.run) if state == "Stopping"] == [
        "ddp-resnet50-1 on gpu-02: code 1"
    ]
    numbers = RunAttempt.objects.filter(run=running.run).order_by("number")
    assert list(numbers.values_list("number", "state", "outcome")) == [
        (1, "ended", "failed"),
        (2, "running", ""),
    ]


def test_fail_job_ends_the_run_with_the_reason(house, machines):
    gang = placed(house, on_failure="FailJob").start()
    gang.end(0, Exit(kind="exited", code=127))
    gang.advance()
    gang.end(1, Exit(kind="stopped", signal=15))

    assert gang.advance() == ("Failed", "ddp-resnet50-0 on gpu-01: code 127: command not found")


def test_a_run_out_of_restarts_fails_with_their_number(house, machines):
    gang = placed(house, max_restarts=1).start()
    for attempt in (1, 2):
        gang.end(0, Exit(kind="exited", signal=9, out_of_memory=True))
        gang.advance()
        gang.end(1, Exit(kind="stopped", signal=15))
        gang.advance()
        if attempt == 1:
            back_off_over(gang)
            replaced(gang).start()

    sentence = "Failed after 1 restart: ddp-resnet50-0 on gpu-01: killed (out of memory: limit 800 GiB)"
    assert gang.shown() == ("Failed", sentence)


def test_a_worker_that_was_stopped_by_nobody_we_know_is_missing_like_any_other(running):
    running.end(1, Exit(kind="stopped", signal=15))

    assert running.advance() == ("Stopping", "1 of 2 workers ended")


def test_a_time_limit_ends_the_run(house, machines):
    document = factories.document_make("short")
    document["spec"]["task_template"]["time_limit_seconds"] = 60
    run = factories.run_pending(house, "short", document=document)
    gang = replaced(Gang(run)).start()
    attempts_sweep()
    assert gang.shown()[0] == "Running"

    past = timedelta(seconds=61)
    RunAttempt.objects.filter(run=run).update(
        opened_at=F("opened_at") - past, time_limit_at=F("time_limit_at") - past
    )
    attempts_sweep()
    assert gang.shown() == ("Stopping", "0 of 2 workers ended")
    gang.all_end(Exit(kind="time_limit", signal=15))
    assert gang.advance() == ("Failed", "Time limit of 1 min reached")


# --- Never ran ---------------------------------------------------------------------------------------


def test_a_member_that_is_not_ready_in_time_sends_all_back_to_the_queue(gang, machines):
    gang.say(0, "ready", ready_at=timezone.now().timestamp() - 901)
    gang.say(1, "preparing", detail="pulling image, 1 of 8 GiB")

    assert gang.advance() == ("Stopping", "0 of 2 workers ended")
    gang.all_end(Exit(kind="stopped"))
    state, reason = gang.advance()
    assert state == "Pending"
    assert reason == (
        "Attempt 1 never ran; back in the queue. Gang barrier timed out waiting for all members"
    )
    assert gang.fresh.restarts == 0
    assert list(gang.fresh.avoid_machines) == [str(machines[1].id)], "the slow one is used last"


def test_three_attempts_that_never_ran_fail_with_the_reason(gang):
    missing = Exit(kind="not_started", message="The command `nosuch` was not found in the image.")
    for attempt in (1, 2, 3):
        gang.say(0, "ready")
        gang.end(1, missing)
        gang.advance()
        gang.end(0, Exit(kind="stopped"))
        gang.advance()
        if attempt < 3:
            assert gang.fresh.state == "Pending"
            back_off_over(gang)
            replaced(gang)

    state, reason = gang.shown()
    assert state == "Failed"
    assert reason == (
        "3 attempts in a row never ran. ddp-resnet50-1 on gpu-02: "
        "The command `nosuch` was not found in the image."
    )
    assert gang.held() == 0


# --- Owners ------------------------------------------------------------------------------------------


def test_stop_waits_for_all_members(running, bea):
    run_stop(run=running.run, actor=bea)
    assert running.advance() == ("Stopping", "0 of 2 workers ended")
    assert running.phases() == ["stop", "stop"]

    running.end(0, Exit(kind="stopped", signal=15), gone=False)
    assert running.advance() == ("Stopping", "0 of 2 workers ended"), "ended is not gone"
    running.end(0, Exit(kind="stopped", signal=15))
    assert running.advance() == ("Stopping", "1 of 2 workers ended")
    running.end(1, Exit(kind="stopped", signal=9))
    assert running.advance() == ("Stopped", "Stopped by bea")
    assert running.worker_states() == ["Stopped", "Stopped"]


def test_restarting_a_running_run_queues_it_anew_and_names_who_asked(running, bea):
    run_restart(run=running.run, actor=bea)
    running.advance()
    running.all_end(Exit(kind="stopped", signal=15))

    assert running.advance() == ("Pending", "Restarted by bea")
    assert running.fresh.restart_asked is False
    assert running.fresh.restarts == 0


def test_a_restart_asked_while_it_is_ending_is_neither_lost_nor_done_twice(running, bea):
    running.end(1, CRASH)
    running.advance()
    run_restart(run=running.run, actor=bea)
    running.end(0, Exit(kind="stopped", signal=15))
    assert running.advance() == ("Pending", "Restarted by bea")

    replaced(running).start()
    assert running.shown() == ("Running", "2 of 2 workers running")


def test_a_stop_is_counted_without_forgetting_the_restarts(running, bea):
    Run.objects.filter(id=running.run.id).update(restarts=2)
    run_stop(run=running.run, actor=bea)
    running.advance()
    running.all_end(Exit(kind="stopped", signal=15))
    running.advance()

    assert running.fresh.restarts == 2


def test_the_sweep_does_what_a_lost_nudge_would_have(gang):
    gang.all_say("ready")
    attempts_sweep()

    assert gang.phases() == ["start", "start"]


# --- Two at once -------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_the_barrier_opens_exactly_once_when_the_last_two_report_together(house):
    """Twenty rounds, each with two real threads that report and look at the same moment."""
    for name in ("gpu-01", "gpu-02"):
        factories.machine_make(house, name)
    for number in range(20):
        gang = placed(house, f"round-{number}")
        together(partial(ready_and_look, gang), 2)
        assert gang.phases() == ["start", "start"], f"round {number}: nobody opened"
        opened = [text for _, text in history(gang.run) if text == "All 2 workers ready: starting"]
        assert len(opened) == 1, f"round {number}: opened {len(opened)} times"

        together(partial(end_and_look, gang), 2)
        assert gang.shown() == ("Succeeded", "2 of 2 workers succeeded"), f"round {number}"
    assert Allocation.objects.filter(released_at=None).count() == 0


def ready_and_look(gang: Gang, rank: int) -> None:
    gang.say(rank, "ready")
    run_advance(gang.run.id)


def end_and_look(gang: Gang, rank: int) -> None:
    gang.end(rank, SUCCESS)
    run_advance(gang.run.id)


def together(work, count: int) -> None:
    """Runs `work(0)`, `work(1)`, … at the same moment, each in a thread with a connection of its own."""
    barrier, errors = threading.Barrier(count), []

    def body(number: int) -> None:
        try:
            barrier.wait(timeout=10)
            work(number)
        except Exception as error:  # noqa: BLE001 - handed over to the test
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert errors == []
