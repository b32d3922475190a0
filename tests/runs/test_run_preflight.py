"""Checks before a gang's start, from placement to open barrier: who gets which, when, and what a failure does."""

import time
from datetime import timedelta

import pytest
from django.db.models import F

from machines.models import Machine
from runs.desired import desired_load
from runs.gang.apply import attempts_sweep
from runs.models import Assignment
from tests import factories
from tests.support.gangs import Gang, back_off_over, replaced
from wire.agent_messages import Exit

pytestmark = pytest.mark.django_db


@pytest.fixture
def gang(house, machines) -> Gang:
    return asked(house, "allreduce")


def asked(house, kind: str) -> Gang:
    document = factories.document_make()
    document["spec"]["task_template"]["requested_resources"]["network"]["preflight"] = kind
    return replaced(Gang(factories.run_pending(house, document=document)))


def checkable(gang: Gang, *ranks: int) -> None:
    for rank in ranks:
        gang.say(rank, "preparing", checkable_at=time.time())


def test_what_agents_get_to_check(gang):
    first, second = (member.launch["preflight"] for member in gang.members)

    assert {key: first[key] for key in ("kind", "meets", "machines", "rank", "port")} == {
        "kind": "allreduce",
        "meets": True,
        "machines": ["gpu-01", "gpu-02"],
        "rank": 0,
        "port": 29500,
    }
    assert first["rdma_ports"] == {f"mlx5_{number}:1": 400.0 for number in range(8)}
    assert (second["rank"], second["token"]) == (1, first["token"])
    [assignment] = desired_load(gang.members[0].machine_id)[1].assignments
    assert (assignment.phase, assignment.preflight.kind) == ("prepare", "allreduce")


@pytest.mark.parametrize(
    ("kind", "simulated", "meets"),
    [("links", False, True), ("links", True, False), ("allreduce", True, True)],
)
def test_links_that_are_only_pretended_need_no_meeting(house, machines, kind, simulated, meets):
    Machine.objects.update(simulated=simulated)
    assert [member.launch["preflight"]["meets"] for member in asked(house, kind).members] == [meets, meets]


def test_nothing_is_checked_where_none_is_asked_for(house, machines):
    assert [member.launch["preflight"] for member in asked(house, "none").members] == [None, None]


def test_all_check_together_before_anybody_is_ready(gang):
    checkable(gang, 0)
    assert gang.advance() == ("Starting", "Starting together: 0 of 2 ready")
    assert gang.phases() == ["prepare", "prepare"]

    checkable(gang, 1)
    attempts_sweep()  # the nudge may be lost
    assert gang.shown() == ("Starting", "Checking the network between 2 machines before the start")
    assert gang.phases() == ["check", "check"]
    assert gang.advance() == gang.shown(), "asked again, nothing happens"

    gang.say(0, "ready")
    assert gang.advance() == ("Starting", "Starting together: 1 of 2 ready")
    gang.say(1, "ready")
    assert gang.advance() == ("Starting", "All 2 workers ready: starting")
    assert gang.phases() == ["start", "start"]


def test_nobody_checks_while_a_member_is_unreachable(gang, machines):
    checkable(gang, 0, 1)
    machines[1].unreachable_at = machines[1].last_seen_at
    machines[1].save()
    gang.advance()
    assert gang.phases() == ["prepare", "prepare"]


def test_a_failed_check_voids_the_attempt_and_its_machine_is_avoided(gang, machines):
    checkable(gang, 0, 1)
    gang.advance()
    message = "The all-reduce check failed: gpu-02 left the check"
    gang.end(0, Exit(kind="preflight_failed", message=message, machines=("gpu-02",)))
    gang.advance()
    gang.end(1, Exit(kind="stopped"))

    assert gang.advance() == (
        "Pending",
        f"Attempt 1 never ran; back in the queue. ddp-resnet50-0 on gpu-01: {message}",
    )
    assert list(gang.fresh.avoid_machines) == [str(machines[1].id)], (
        "the one at fault, not the one that said so"
    )
    assert gang.fresh.restarts == 0
    assert gang.held() == 0


def test_three_failed_checks_in_a_row_fail_the_run(gang):
    for number in range(3):
        gang.all_end(
            Exit(kind="preflight_failed", message="The link check failed: RDMA port mlx5_0:1 is DOWN")
        )
        gang.advance()
        if number < 2:
            back_off_over(gang)
            replaced(gang)
    assert gang.shown() == (
        "Failed",
        (
            "3 attempts in a row never ran. ddp-resnet50-0 on gpu-01: The link check failed: RDMA port mlx5_0:1 is "
            "DOWN"
        ),
    )


def test_who_holds_up_the_check_is_avoided_when_the_time_is_up(gang, machines):
    checkable(gang, 0)
    Assignment.objects.filter(id=gang.members[0].id).update(
        checkable_at=F("checkable_at") - timedelta(minutes=15)
    )
    gang.advance()
    assert list(gang.fresh.avoid_machines) == [str(machines[1].id)]
