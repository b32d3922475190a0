"""What agents report: twice, late, out of order, or not at all."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from machines.models import Machine
from runs.models import Allocation, Assignment, WorkerEvent
from runs.reasons import word
from runs.reports import assignments_sweep_lost
from tests.support.gangs import CRASH, INVENTORY, SUCCESS, ended, note, report, tell
from wire.agent_messages import Exit
from wire.assignments import FEATURES

pytestmark = pytest.mark.django_db
RISING = ["preparing", "ready", "running", "stopping"]


def state(assignment: Assignment) -> str:
    assignment.refresh_from_db()
    return assignment.state


def story(assignment: Assignment) -> list[str]:
    return [word(event.reason) for event in WorkerEvent.objects.filter(worker=assignment.worker)]


def test_states_rise_one_by_one(gang):
    member = gang.members[0]
    seen = []
    for each in RISING:
        tell(member.machine, report(member, each))
        seen.append(state(member))

    assert seen == ["Preparing", "Ready", "Running", "Stopping"]


@pytest.mark.parametrize("first", range(1, 4))
def test_a_state_never_falls(gang, first):
    member = gang.members[0]
    tell(member.machine, report(member, RISING[first]))
    reached = state(member)
    for earlier in RISING[:first]:
        tell(member.machine, report(member, earlier))

    assert state(member) == reached


def test_what_has_ended_stays_as_it_ended(gang):
    member = gang.members[0]
    tell(member.machine, ended(member, CRASH, gone=False))
    tell(member.machine, report(member, "running"), report(member, "stopping"))
    tell(member.machine, ended(member, SUCCESS, gone=False))

    assert state(member) == "Failed"
    assert member.exit == {"kind": "exited", "code": 1}
    assert gang.worker_states() == ["Failed", "Placed"]


@pytest.mark.parametrize(
    ("exit_", "ordered", "expected"),
    [
        (Exit(kind="exited", code=0), False, "Succeeded"),
        (Exit(kind="exited", code=0), True, "Succeeded"),
        (Exit(kind="exited", code=1), False, "Failed"),
        (Exit(kind="exited", signal=15), False, "Failed"),
        (Exit(kind="exited", signal=15), True, "Stopped"),
        (Exit(kind="stopped", signal=9), True, "Stopped"),
        (Exit(kind="time_limit", signal=15), False, "Failed"),
        (Exit(kind="cut_off", message="the console was out of reach for 60 s"), False, "Failed"),
        (Exit(kind="not_started", message="nosuch: not found"), False, "Failed"),
        (Exit(kind="not_prepared", message="no such image"), False, "Failed"),
        (Exit(kind="lost", message="the supervisor is gone"), False, "Lost"),
        (None, False, "Lost"),
    ],
)
def test_how_a_worker_ended(gang, exit_, ordered, expected):
    member = gang.members[0]
    if ordered:
        Assignment.objects.filter(id=member.id).update(phase="stop")
    tell(member.machine, report(member, "ended", exit=exit_))

    assert state(member) == expected


def test_a_report_that_comes_twice_changes_nothing(running):
    member = running.members[0]
    before = (story(member), Machine.objects.get(id=member.machine_id).desired_revision, running.held())
    tell(member.machine, report(member, "running"), report(member, "running"))

    after = (story(member), Machine.objects.get(id=member.machine_id).desired_revision, running.held())
    assert after == before


def test_notes_make_a_story_and_each_is_told_once(gang):
    member = gang.members[0]
    notes = [note(0, "Image pulled, 8.1 GiB in 41 s"), note(1, "Sandbox built")]
    tell(member.machine, report(member, "preparing", notes=notes[:1]))
    tell(member.machine, report(member, "preparing", notes=notes))
    tell(member.machine, report(member, "ready", notes=[note(1, "another text under an old number")]))

    assert story(member) == [
        "Placed on gpu-01 with 8 GPUs: one rack on one InfiniBand fabric",
        "Image pulled, 8.1 GiB in 41 s",
        "Preparing",
        "Sandbox built",
        "Ready, waits for the others",
    ]


def test_times_are_the_agents_corrected_by_its_clock_and_written_once(gang):
    member = gang.members[0]
    tell(member.machine, report(member, "running", started_at=1_000.0), skew=7)
    tell(member.machine, report(member, "running", started_at=2_000.0), skew=7)

    member.refresh_from_db()
    assert member.started_at == datetime.fromtimestamp(1_007, UTC)


def test_only_gone_frees_what_a_worker_holds(running, django_capture_on_commit_callbacks, empty_redis):
    member = running.members[0]
    mine = Allocation.objects.filter(assignment=member, released_at=None)
    assert mine.count() == 9, "8 GPUs, and one row for cores, memory and the port"
    version = Machine.objects.get(id=member.machine_id).version

    tell(member.machine, ended(member, CRASH, gone=False))
    assert mine.count() == 9
    with django_capture_on_commit_callbacks(execute=True):
        tell(member.machine, ended(member, CRASH, log_size=4711))

    assert mine.count() == 0
    member.refresh_from_db()
    assert member.gone_at is not None
    assert member.log_final == 4711
    assert Machine.objects.get(id=member.machine_id).version == version + 1
    assert empty_redis.llen("place") == 1, "a pass is nudged"
    assert empty_redis.llen("react") == 1, "and the deciding place"


def test_another_machine_s_assignment_is_none_of_its_business(gang, machines):
    member = gang.members[0]
    tell(machines[1], ended(member, CRASH))

    assert state(member) == "Placed"
    assert member.gone_at is None


def test_a_report_of_an_unknown_assignment_is_ignored(gang):
    member = gang.members[0]
    stranger = report(member, "running").model_copy(update={"id": "00000000-0000-4000-8000-000000000000"})
    nonsense = stranger.model_copy(update={"id": "not an id"})
    tell(member.machine, stranger, nonsense)

    assert state(member) == "Placed"


def test_what_a_worker_that_runs_is_doing_stands_beside_its_state(running):
    member = running.members[0]
    unready = "Not ready: readiness probe failed 3 times: port 8080: connection refused"
    tell(member.machine, report(member, "running", detail=unready))
    member.worker.refresh_from_db()
    assert word(member.worker.reason) == f"Running on gpu-01. {unready}"

    before = story(member)
    tell(member.machine, report(member, "running", detail="Ready"))
    member.worker.refresh_from_db()
    assert word(member.worker.reason) == "Running on gpu-01. Ready"
    assert story(member) == before, "the history has the agent's notes for that"


@pytest.mark.parametrize(
    ("exit_", "sentence"),
    [
        (
            Exit(kind="probe_failed", code=143, message="liveness probe failed 3 times: exit 1: no answer"),
            "Ended on gpu-01: liveness probe failed 3 times: exit 1: no answer",
        ),
        (
            Exit(kind="hung", signal=9, message="hung: no log line for 10 min while its GPUs were idle"),
            "Ended on gpu-01: hung: no log line for 10 min while its GPUs were idle",
        ),
        (
            Exit(kind="exited", code=1, cause="ValueError: batch size must be positive", cause_at=4711),
            "Ended on gpu-01: code 1; likely cause: “ValueError: batch size must be positive”",
        ),
    ],
)
def test_why_a_worker_failed_is_quoted(running, exit_, sentence):
    member = running.members[0]
    tell(member.machine, ended(member, exit_))

    assert state(member) == "Failed"
    assert story(member)[-1] == sentence


@pytest.mark.parametrize("kind", ["probe_failed", "hung"])
def test_a_probe_that_fails_follows_on_failure(running, kind):
    """As any other failure does: the run's document says RestartJob."""
    running.end(0, Exit(kind=kind, code=1, message="it failed"))
    running.advance()
    running.end(1, Exit(kind="stopped", signal=15))

    assert running.advance() == (
        "Pending",
        "Attempt 1 failed (ddp-resnet50-0 on gpu-01: it failed). Attempt 2 is queued in 10 s.",
    )


PARTS = {"probes": {"liveness": {"tcp": 8080}}, "warn_signal_seconds": 60, "hang_after_seconds": 600}


def test_an_agent_too_old_for_a_part_of_the_run_is_not_started_with_it(gang, machines):
    """It would pass over the part in silence."""
    for member in gang.members:
        member.launch = {**member.launch, **PARTS}
        member.save()
    gang.all_say("ready")

    assert gang.worker_states() == ["Failed", "Failed"]
    assert gang.advance() == ("Stopping", "0 of 2 workers ended")
    assert gang.phases() == ["stop", "stop"], "it is never told to start"
    gang.all_end(Exit(kind="stopped"))
    why = (
        "The agent of gpu-01 is too old for hang detection, probes and a warning before the time limit. "
        "Update it there, or leave them out."
    )
    assert gang.advance() == (
        "Pending",
        f"Attempt 1 never ran; back in the queue. ddp-resnet50-0 on gpu-01: {why}",
    )


def test_an_agent_that_knows_all_parts_is(gang):
    member = gang.members[0]
    member.launch = {**member.launch, **PARTS}
    member.save()
    able = INVENTORY.model_copy(update={"features": tuple(FEATURES)})
    tell(member.machine, report(member, "ready"), inventory=able)

    assert state(member) == "Ready"


# --- Lost --------------------------------------------------------------------------------------------


def test_an_agent_that_no_longer_knows_a_worker_has_lost_it_but_it_still_holds(running):
    member = running.members[0]
    tell(member.machine, applied=member.revision - 1)
    assert state(member) == "Running", "an agent that applied less can't know it yet"
    tell(member.machine, applied=None)
    assert state(member) == "Running", "this absence says nothing"

    tell(member.machine, applied=member.revision)
    assert state(member) == "Lost"
    assert running.held() == 18
    member.worker.refresh_from_db()
    assert word(member.worker.reason) == "Ended on gpu-01: gpu-01's agent no longer knows this worker"


def unreachable(machine: Machine, seconds: float) -> None:
    Machine.objects.filter(id=machine.id).update(unreachable_at=timezone.now() - timedelta(seconds=seconds))


def test_workers_of_a_machine_are_lost_ninety_seconds_after_it_became_unreachable(running, machines):
    unreachable(machines[1], 80)
    assignments_sweep_lost()
    assert running.worker_states() == ["Running", "Running"]

    unreachable(machines[1], 91)
    assignments_sweep_lost()
    assert running.worker_states() == ["Running", "Lost"]
    assert running.held() == 18
    worker = running.run.workers.get(rank=1)
    assert word(worker.reason) == (
        "gpu-02 has not been heard from for 2 min 15 s. "
        "The worker may still run; if the machine comes back, it is stopped."
    )


def test_a_machine_that_is_back_in_time_loses_nothing(running, machines):
    unreachable(machines[1], 91)
    Machine.objects.filter(id=machines[1].id).update(unreachable_at=None)
    assignments_sweep_lost()

    assert running.worker_states() == ["Running", "Running"]


def test_the_next_attempt_does_not_wait_for_a_lost_machine_but_its_gpus_stay_held(running, machines):
    unreachable(machines[1], 91)
    assignments_sweep_lost()
    assert running.advance() == ("Stopping", "1 of 2 workers ended")
    lost = running.members[1]
    assert lost.phase == "stop", "a machine that comes back is told to stop it at once"

    running.end(0, Exit(kind="stopped", signal=15))
    why = "ddp-resnet50-1 on gpu-02: gpu-02 has not been heard from"
    assert running.advance() == ("Pending", f"Attempt 1 failed ({why}). Attempt 2 is queued in 10 s.")
    assert Allocation.objects.filter(assignment=lost, released_at=None).count() == 9

    # Back after hours: it tells how the worker really ended, and only now are its GPUs free.
    tell(machines[1], ended(lost, Exit(kind="stopped", signal=15)))
    assert state(lost) == "Stopped"
    assert lost.exit == {"kind": "stopped", "signal": 15}
    assert Allocation.objects.filter(assignment=lost, released_at=None).count() == 0
    assert running.worker_states() == ["Pending", "Pending"], "an old attempt changes nothing on the page"


def test_a_lost_worker_that_ends_after_all_is_no_longer_lost(running, machines):
    unreachable(machines[1], 91)
    assignments_sweep_lost()
    member = running.members[1]
    tell(machines[1], report(member, "running"))
    assert state(member) == "Lost", "running is no news of a lost one: it is to be stopped"
    tell(machines[1], ended(member, CRASH))

    assert state(member) == "Failed"
    assert member.exit == {"kind": "exited", "code": 1}
