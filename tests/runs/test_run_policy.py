"""What a pass does about runs that wait, in the database."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from common.clock import database_now
from machines.models import Gpu, Machine, WorkspacePool
from machines.states import Health
from runs.models import (
    Allocation,
    Claim,
    DecisionRecord,
    Reservation,
    Run,
    RunAttempt,
    WorkspaceUsage,
)
from runs.presentation import run_reason
from runs.reasons import word
from runs.scheduling import apply, passes, preemption
from runs.scheduling.memory import memory_forget
from runs.scheduling.passes import cluster_pass
from runs.scheduling.usage import HALF_LIFE, usage_charge, usage_of
from tenancy.models import Workspace
from tests import factories
from tests.support.gangs import SUCCESS, Gang, placed

pytestmark = pytest.mark.django_db


def submitted(house, name, *, machines=1, time_limit=None, workspace=None, **spec) -> Gang:
    document = factories.document_make(name, gpus=8 * machines, machines=machines, **spec)
    if time_limit:
        document["spec"]["task_template"]["time_limit_seconds"] = time_limit
    run = factories.run_pending(house, name, document=document)
    if workspace:
        Run.objects.filter(id=run.id).update(workspace=workspace)
    return Gang(run)


def pass_over(house) -> None:
    cluster_pass(house.cluster.id)


def waits(gang: Gang) -> list[tuple[str, str, bool]]:
    """Kind, cause and whether it lasts, in order."""
    return [(wait.kind, wait.cause, wait.until is None) for wait in gang.run.waits.all()]


def long_ago(gang: Gang, **ago: int) -> None:
    """Has its attempt placed that long ago."""
    RunAttempt.objects.filter(run=gang.run).update(placed_at=database_now() - timedelta(**ago))


@pytest.fixture
def audio(house):
    workspace = Workspace.objects.create(organization=house.organization, slug="audio", name="Audio")
    WorkspacePool.objects.create(workspace=workspace, pool=house.pool)
    return workspace


# --- Order and reservations -------------------------------------------------------------------------


def test_a_large_gang_is_kept_machines_and_a_small_run_waits_behind_it(house, machines):
    holder = placed(house, "holder", machines=1)
    big = submitted(house, "big", machines=2)
    small = submitted(house, "small")
    pass_over(house)

    kept = Reservation.objects.get()
    assert (kept.run.name, kept.machines) == ("big", [machine.id for machine in machines])
    assert (kept.starts_at, kept.waits_for) == (None, [holder.run.id])
    assert [(g.fresh.state, g.fresh.wait_kind, g.fresh.queue_position) for g in (big, small)] == [
        ("Pending", "fit", 1),
        ("Pending", "order", 2),
    ]
    holder.start().all_end(SUCCESS)
    holder.advance()
    pass_over(house)
    assert (big.fresh.state, small.fresh.state) == ("Starting", "Pending")
    assert not Reservation.objects.filter(run=big.run).exists(), "it ends with the placement"


def test_a_short_run_goes_first_where_it_is_out_of_the_way_in_time(house, machines):
    placed(house, "holder", machines=1)
    attempt = RunAttempt.objects.get()
    Run.objects.filter(id=attempt.run_id).update(document=_limited(attempt.run.document, 7200))
    memory_forget()
    big = submitted(house, "big", machines=2)
    short = submitted(house, "short", time_limit=1800)
    pass_over(house)

    starts_at = big.run.reservation.starts_at
    assert starts_at is not None
    assert starts_at > timezone.now() + timedelta(hours=1, minutes=59)
    assert (big.fresh.state, short.fresh.state) == ("Pending", "Starting")


def _limited(document: dict[str, Any], seconds: int) -> dict[str, Any]:
    document["spec"]["task_template"]["time_limit_seconds"] = seconds
    return document


def test_what_a_run_waited_for_is_its_history(house, machines):
    holder = placed(house, "holder", machines=1)
    big = submitted(house, "big", machines=2)
    small = submitted(house, "small")
    pass_over(house)
    pass_over(house)
    assert waits(small) == [("order", "reserved", True)]
    assert waits(big) == [("fit", "no_fabric_room", True)]

    big_run = big.run
    Run.objects.filter(id=big_run.id).update(wanted="stop", stopped_by="ana")
    big.advance()
    assert waits(big) == [("fit", "no_fabric_room", False)]
    pass_over(house)
    assert small.fresh.state == "Starting"
    assert waits(small) == [("order", "reserved", False)]
    assert holder.fresh.state == "Starting"


def test_never_possible_is_told_by_the_first_pass(house, machines):
    gang = submitted(house, "huge", machines=3)
    pass_over(house)
    assert (gang.fresh.wait_kind, waits(gang)) == ("never", [("never", "impossible", True)])
    assert gang.fresh.explanation["wait"]["changes"]


# --- Records ----------------------------------------------------------------------------------------


def test_a_placement_and_each_new_cause_are_kept_once(house, machines):
    placed(house, "holder", machines=1)
    big = submitted(house, "big", machines=2)
    for _ in range(3):
        pass_over(house)
    assert list(DecisionRecord.objects.values_list("run__name", "placed")) == [
        ("holder", True),
        ("big", False),
    ]
    assert big.fresh.judged["step"] == 0


# --- Preemption -------------------------------------------------------------------------------------


def test_a_preemptible_gang_makes_room_and_comes_back(house, machines):
    """Stopped as a whole, back in the queue with its reason, no restart counted; its GPUs go to nobody else."""
    victim = placed(house, "victim", preemptible=True).start()
    long_ago(victim, minutes=11)
    urgent = submitted(house, "urgent", priority=10)
    pass_over(house)

    assert victim.advance()[0] == "Stopping"
    assert Claim.objects.filter(run=urgent.run, gpu__isnull=False).count() == 8
    assert waits(urgent) == [("fit", "making_room", True)]
    other = submitted(house, "other", priority=20)
    victim.all_end(SUCCESS)
    assert victim.advance() == (
        "Pending",
        "Stopped to make room for urgent; back in the queue, not counted as a restart",
    )
    assert (victim.fresh.restarts, victim.fresh.preemption) == (0, None)

    pass_over(house)
    assert [gang.fresh.state for gang in (urgent, other, victim)] == ["Starting", "Starting", "Pending"]
    claimed = {claim.machine_id for claim in Claim.objects.all()}
    assert claimed == set(), "a claim ends with the placement"
    assert {m.machine.name for m in urgent.members} != {m.machine.name for m in other.members}


def test_claimed_gpus_go_to_nobody_else_even_of_higher_priority(house, machines):
    victim = placed(house, "victim", machines=1, preemptible=True).start()
    placed(house, "firm", machines=1, priority=90)
    long_ago(victim, minutes=11)
    urgent = submitted(house, "urgent", priority=10)
    pass_over(house)
    victim.advance()
    later = submitted(house, "later", priority=50)
    victim.end(0, SUCCESS)
    victim.advance()
    pass_over(house)

    assert (urgent.fresh.state, later.fresh.state) == ("Starting", "Pending")


@pytest.mark.parametrize(
    ("spec", "minutes"),
    [({"preemptible": False}, 60), ({"preemptible": True}, 9), ({"preemptible": True, "priority": 10}, 60)],
    ids=["not preemptible", "placed 9 min ago", "of equal priority"],
)
def test_whom_nobody_stops(house, machines, spec, minutes):
    victim = placed(house, "victim", **spec).start()
    long_ago(victim, minutes=minutes)
    submitted(house, "urgent", priority=10)
    pass_over(house)
    assert victim.advance()[0] == "Running"
    assert not Claim.objects.exists()


def test_a_victim_that_ended_meanwhile_stops_nobody(house, machines, monkeypatch):
    victim = placed(house, "victim", preemptible=True).start()
    long_ago(victim, minutes=11)
    urgent = submitted(house, "urgent", priority=10)
    original = preemption.preemption_apply

    def late(*arguments):
        Run.objects.filter(id=victim.run.id).update(wanted="stop")
        return original(*arguments)

    monkeypatch.setattr(passes, "preemption_apply", late)
    pass_over(house)
    assert (victim.fresh.preemption, Claim.objects.count()) == (None, 0)
    assert urgent.fresh.state == "Pending"


def test_claims_end_with_the_run_that_made_them(house, machines):
    victim = placed(house, "victim", preemptible=True).start()
    long_ago(victim, minutes=11)
    urgent = submitted(house, "urgent", priority=10)
    pass_over(house)
    Run.objects.filter(id=urgent.run.id).update(wanted="stop", stopped_by="ana")
    urgent.advance()
    assert not Claim.objects.exists()


def test_a_run_of_another_workspace_is_not_named(house, machines, audio):
    victim = placed(house, "victim", preemptible=True).start()
    long_ago(victim, minutes=11)
    submitted(house, "urgent", priority=10, workspace=audio)
    pass_over(house)
    assert word(victim.fresh.preemption or {}).startswith(
        "Stopped to make room for a run of another workspace;"
    )


# --- A GPU that shows a sign before the start --------------------------------------------------------


def test_a_gang_that_asked_for_healthy_gpus_goes_back_when_one_turns_suspect_before_the_start(
    house, machines
):
    gang = placed(house, "careful")
    gang.all_say("ready")
    Gpu.objects.filter(machine=machines[0], index=3).update(health=Health.SUSPECT)
    assert gang.advance()[0] == "Stopping"
    gang.all_end(SUCCESS)
    state, reason = gang.advance()
    assert (state, gang.fresh.restarts, gang.fresh.voids) == ("Pending", 0, 0)
    assert reason == (
        "GPU 3 on gpu-01 showed a warning sign before the start; only healthy GPUs were asked for"
    )


def test_while_it_runs_a_suspect_gpu_ends_nothing(house, machines):
    gang = placed(house, "careful").start()
    Gpu.objects.filter(machine=machines[0], index=3).update(health=Health.SUSPECT)
    assert gang.advance()[0] == "Running"


# --- Fair share --------------------------------------------------------------------------------------


def test_usage_is_what_was_held_halved_every_seven_days(house, machines):
    gang = placed(house, "gang")
    now = database_now()
    week_ago = now - HALF_LIFE
    Allocation.objects.filter(assignment__attempt__run=gang.run).update(
        created_at=week_ago - timedelta(hours=1), released_at=week_ago
    )
    usage_charge(house.cluster, None, now)
    seconds = 16 * 3600 / 2
    assert usage_of(house.cluster, now) == {house.workspace.id: pytest.approx(seconds, rel=0.01)}
    usage_charge(house.cluster, now, now + HALF_LIFE)
    assert WorkspaceUsage.objects.get().gpu_seconds == pytest.approx(seconds / 2, rel=0.01)


def test_charging_twice_counts_once(house, machines):
    gang = placed(house, "gang")
    now = database_now()
    Allocation.objects.filter(assignment__attempt__run=gang.run).update(created_at=now - timedelta(hours=1))
    WorkspaceUsage.objects.all().delete()
    usage_charge(house.cluster, None, now - timedelta(minutes=30))
    usage_charge(house.cluster, now - timedelta(minutes=30), now)
    assert WorkspaceUsage.objects.get().gpu_seconds == pytest.approx(16 * 3600, rel=0.01)


def test_who_has_used_less_goes_first(house, machines, audio):
    now = database_now()
    WorkspaceUsage.objects.create(workspace=house.workspace, cluster=house.cluster, gpu_seconds=9000, at=now)
    WorkspaceUsage.objects.create(workspace=audio, cluster=house.cluster, gpu_seconds=100, at=now)
    mine, theirs = (
        submitted(house, "mine", machines=2),
        submitted(house, "theirs", machines=2, workspace=audio),
    )
    pass_over(house)
    assert (mine.fresh.state, theirs.fresh.state) == ("Pending", "Starting")


def test_machines_that_are_gone_from_a_reservation_are_forgotten(house, machines):
    placed(house, "holder", machines=1)
    submitted(house, "big", machines=2)
    pass_over(house)
    Reservation.objects.update(machines=[999_999])
    pass_over(house)
    assert Reservation.objects.get().machines == [machine.id for machine in machines]
    assert Machine.objects.count() == 2


def test_who_goes_first_is_named_in_the_own_workspace_only(house, machines, audio):
    placed(house, "holder", machines=1)
    submitted(house, "big", machines=2)
    small, theirs = submitted(house, "small"), submitted(house, "theirs", workspace=audio)
    WorkspaceUsage.objects.create(workspace=audio, cluster=house.cluster, gpu_seconds=1e9, at=database_now())
    pass_over(house)
    assert run_reason(small.fresh) == "big goes first and keeps machines that this run could use."
    assert run_reason(theirs.fresh) == (
        "A run of another workspace goes first and keeps machines that this run could use."
    )


# --- Faults -----------------------------------------------------------------------------------------


def test_a_machine_that_vanishes_between_deciding_and_applying(house, machines, monkeypatch):
    gang = submitted(house, "big", machines=2)
    original = apply.placement_apply

    def late(*arguments):
        Machine.objects.filter(name="gpu-02").delete()
        return original(*arguments)

    monkeypatch.setattr(passes, "placement_apply", late)
    pass_over(house)
    assert (gang.fresh.state, gang.fresh.set_aside, Allocation.objects.count()) == ("Pending", "", 0)
    monkeypatch.undo()
    pass_over(house)
    assert gang.fresh.wait_kind == "never", "one machine is left, and two are asked for"


@pytest.mark.parametrize("hours", [-5, 5], ids=["back", "forward"])
def test_a_clock_that_steps_crashes_no_pass(house, machines, monkeypatch, hours):
    placed(house, "holder", machines=1, preemptible=True)
    document = factories.document_make("patient", gpus=8, machines=1)
    document["spec"]["task_template"]["requested_resources"]["topology"]["patience_seconds"] = 600
    gangs = [
        submitted(house, "big", machines=2),
        Gang(factories.run_pending(house, "patient", document=document)),
    ]
    pass_over(house)
    stepped = database_now() + timedelta(hours=hours)
    monkeypatch.setattr(passes, "database_now", lambda: stepped)
    pass_over(house)
    assert [gang.fresh.set_aside for gang in gangs] == ["", ""]
    assert usage_of(house.cluster, stepped)[house.workspace.id] >= 0
    monkeypatch.undo()
    pass_over(house)
    assert [gang.fresh.set_aside for gang in gangs] == ["", ""]


def test_machines_without_anything_known_stop_no_pass(house, machines):
    """No labels, no ports, no GPUs, no cores, unknown models; thousands of them would be told in a few rows."""
    bare = [
        Machine(cluster=house.cluster, pool=house.pool, name=f"bare-{n}", runtime="bubblewrap")
        for n in range(50)
    ]
    Machine.objects.bulk_create(bare)
    Gpu.objects.create(machine=bare[0], uuid="GPU-x", index=0, product="?", model="", memory_bytes=0)
    gang = submitted(house, "big", machines=2)
    pass_over(house)
    assert gang.fresh.state == "Starting"
