"""Draining a machine: nothing new lands there, and what runs there goes back to the queue when its time is over."""

from datetime import timedelta

import pytest

from machines.models import Machine
from machines.operations import machine_drain
from machines.services import machine_uncordon
from runs.draining import drains_sweep
from runs.models import Run, RunAttempt
from tests import factories
from wire.agent_messages import Exit

pytestmark = pytest.mark.django_db
STOPPED = Exit(kind="exited", code=143)


@pytest.fixture
def ana(house):
    return factories.actor_of(house.ana)


def due(machine: Machine) -> None:
    """Its time is over."""
    Machine.objects.filter(id=machine.id).update(drain_until=machine.created_at)


def test_what_runs_there_goes_on_until_its_time_is_over(running, machines, ana):
    machine_drain(machine=machines[0], actor=ana, within=timedelta(hours=1))
    drains_sweep()
    assert running.advance()[0] == "Running"

    due(machines[0])
    drains_sweep()
    assert running.advance()[0] == "Stopping"
    running.all_end(STOPPED)
    assert running.advance()[0] == "Pending"
    run = Run.objects.get()
    assert (run.restarts, run.preemption) == (0, None)
    assert RunAttempt.objects.get().outcome == "requeued"
    texts = list(run.events.values_list("reason__code", flat=True))
    assert "drained" in texts


def test_a_drain_that_was_called_off_moves_nothing(running, machines, ana):
    machine_drain(machine=machines[0], actor=ana)
    machine_uncordon(machine=machines[0], actor=ana)
    drains_sweep()

    assert Run.objects.get().preemption is None


def test_a_run_that_is_being_stopped_is_left_alone(running, machines, ana, bea):
    from runs.services import run_stop

    run_stop(run=Run.objects.get(), actor=bea)
    machine_drain(machine=machines[0], actor=ana)
    drains_sweep()

    assert Run.objects.get().preemption is None


def test_sweeping_twice_moves_once(running, machines, ana):
    machine_drain(machine=machines[0], actor=ana)
    due(machines[0])
    drains_sweep()
    drains_sweep()

    assert running.advance()[0] == "Stopping"


def test_another_machine_s_runs_are_left_alone(house, running, ana):
    other = factories.machine_make(house, "gpu-03")
    machine_drain(machine=other, actor=ana)
    due(other)
    drains_sweep()

    assert Run.objects.get().preemption is None
