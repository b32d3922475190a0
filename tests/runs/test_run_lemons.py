"""The lemon score: machines on which runs fail are used last, by everybody, until it fades or somebody mends them."""

from datetime import timedelta
from typing import Any

import pytest

from common.clock import database_now
from machines.models import Machine
from runs.gang.blame import fault_of, fault_words
from runs.lemons import (
    KEPT,
    failures_counted,
    failures_forget,
    failures_note,
    failures_prune,
    lemon_score,
    lemon_tiers,
)
from runs.models import MachineFailure, Run
from runs.states import Fault
from tenancy.models import AuditEvent
from tests import factories
from tests.support.gangs import CRASH, placed
from wire.agent_messages import Exit

pytestmark = pytest.mark.django_db
LOST = {"code": "member_failed", "worker": "a-0", "exit": {"kind": "lost", "message": "never heard again"}}


def failed(**exit_) -> dict[str, Any]:
    return {
        "code": "member_failed",
        "worker": "a-0",
        "machine": "gpu-01",
        "exit": {"kind": "exited", **exit_},
    }


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ({"code": "barrier_timeout"}, Fault.SLOW),
        (LOST, Fault.LOST),
        (failed(kind="hung", message="no output for 30 min"), Fault.HUNG),
        (failed(kind="not_prepared", message="no such drive"), Fault.PREPARE),
        (failed(code=1), Fault.PROGRAM),
        (failed(signal=9, out_of_memory=True, cause="uncorrectable ECC error"), Fault.PROGRAM),
        (failed(code=1, cause="RuntimeError: CUDA error: uncorrectable ECC error encountered"), Fault.DEVICE),
        (failed(code=1, cause="RuntimeError: CUDA error: an illegal memory access"), Fault.PROGRAM),
        (failed(code=1, cause="torch.OutOfMemoryError: CUDA out of memory."), Fault.PROGRAM),
        (failed(code=1, cause="gpu-01:2:9 [0] NCCL WARN Timeout waiting for connection"), Fault.NETWORK),
        (failed(kind="preflight_failed", message="gpu-02 is slow", machines=["gpu-02"]), Fault.NETWORK),
        (failed(kind="cut_off", message="the console was out of reach"), None),
        (failed(kind="stopped", signal=15), None),
    ],
)
def test_what_a_machine_has_to_do_with_the_end_of_an_attempt(reason, kind):
    assert fault_of(reason) == kind
    assert kind is None or fault_words(reason)


@pytest.fixture
def run(house) -> Run:
    return factories.run_pending(house, "eval-3")


def note(run: Run, machine: Machine, reason=LOST, **ago: float) -> None:
    failures_note(run, [machine.id], reason, database_now() - timedelta(**ago))


def test_failures_fade_by_half_in_three_days_and_a_run_counts_once_for_each_kind(house, machines, run):
    machine, other = machines
    now = database_now()
    note(run, machine, days=6)
    note(run, machine, days=3)
    note(run, machine, {"code": "barrier_timeout"}, days=0)
    note(run, other, failed(code=1))

    counted = failures_counted(machines, now + timedelta(seconds=5))

    scores = {key: lemon_score(failures) for key, failures in counted.items()}
    assert scores == {
        machine.id: pytest.approx(0.5 + 0.5, abs=0.001),
        other.id: pytest.approx(0.1, abs=0.001),
    }
    told = counted[machine.id]
    assert [(each.failure.kind, each.failure.times, round(each.counts, 2)) for each in told] == [
        ("slow", 1, 0.5),
        ("lost", 2, 0.5),
    ]
    assert told[1].failure.text == "a-0: never heard again"


def test_all_machines_of_an_attempt_are_noted_at_once(machines, run, django_assert_num_queries):
    note(run, machines[0])
    with django_assert_num_queries(2):
        failures_note(run, [each.id for each in machines], LOST, run.created_at)
    found = MachineFailure.objects.order_by("machine__name").values_list("machine__name", "times", "at")
    assert list(found) == [("gpu-01", 2, run.created_at), ("gpu-02", 1, run.created_at)]


def test_only_lemons_are_used_last_and_about_as_bad_is_as_bad(house, machines, run):
    machine, other = machines
    for number in range(3):
        note(factories.run_pending(house, f"lost-{number}"), machine)
    note(run, other, failed(code=1))

    assert lemon_tiers(house.cluster.id, database_now()) == {machine.id: 2.0}


def test_failures_are_forgotten_after_a_month_and_when_their_run_is_deleted_they_stay(house, machines, run):
    machine = machines[0]
    note(run, machine, days=29)
    note(factories.run_pending(house, "old"), machine, seconds=KEPT.total_seconds() + 60)
    assert len(failures_counted([machine], database_now())[machine.id]) == 1

    failures_prune()
    Run.objects.filter(id=run.id).delete()

    [left] = MachineFailure.objects.all()
    assert (left.run, left.run_name) == (None, "eval-3")


def test_an_operator_forgets_the_failures_of_a_machine_that_was_mended(house, machines, run):
    ana = factories.actor_of(house.ana)
    note(run, machines[0])
    version = Machine.objects.get(id=machines[0].id).version

    assert failures_forget(machine=machines[0], actor=ana) == 1
    assert failures_forget(machine=machines[0], actor=ana) == 0

    assert lemon_tiers(house.cluster.id, database_now()) == {}
    assert Machine.objects.get(id=machines[0].id).version > version
    assert list(AuditEvent.objects.values_list("action", "before").order_by("-id")[:1]) == [
        ("machine.forget_failures", {"failures": 1})
    ]


def placed_on(house, name: str) -> list[str]:
    return [member.machine.name for member in placed(house, name).members]


def test_a_run_that_fails_on_a_machine_makes_others_use_it_last(house):
    """A worker that is lost speaks against its machine for every run; a program's error only for its own."""
    for number in (1, 2, 3, 4):
        factories.machine_make(house, f"gpu-0{number}")
    gang = placed(house).start()
    assert [member.machine.name for member in gang.members] == ["gpu-01", "gpu-02"]
    gang.end(0, Exit(kind="lost", message="The start marker is there and no process."))
    gang.advance()
    gang.end(1, Exit(kind="stopped"))
    gang.advance()

    [failure] = MachineFailure.objects.select_related("machine")
    assert (failure.machine.name, failure.kind, failure.run_name) == ("gpu-01", "lost", "ddp-resnet50")
    assert failure.text == "ddp-resnet50-0: The start marker is there and no process."
    assert placed_on(house, "other") == ["gpu-02", "gpu-03"]


def test_a_crash_of_a_program_sends_nobody_else_away(house):
    for number in (1, 2, 3):
        factories.machine_make(house, f"gpu-0{number}")
    gang = placed(house).start()
    gang.end(0, CRASH)
    gang.advance()
    gang.end(1, Exit(kind="stopped"))
    gang.advance()

    assert placed_on(house, "other") == ["gpu-01", "gpu-02"]


def test_a_lemon_is_still_used_when_there_is_no_other(house, machines, run):
    note(run, machines[0])
    Run.objects.filter(id=run.id).update(state="Stopped")

    assert placed_on(house, "other") == ["gpu-01", "gpu-02"]
