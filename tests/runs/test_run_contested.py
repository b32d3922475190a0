"""A disk that was cloned: while two agents use one credential, the machine takes no new work, and says why."""

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from machines.channel import sync_receive, two_agents_forget
from machines.models import Machine, ReplacedAgent
from runs.explanations import explanation_of
from runs.models import Run
from runs.scheduling.passes import cluster_pass
from tests import factories as make
from wire.agent_messages import SyncRequest

pytestmark = pytest.mark.django_db
SENTENCE = "Two agents use its credential, so nothing is started there; 8 of 8 GPUs free"


def heard(machine: Machine, instance: str, sequence: int) -> None:
    """A poll that repeats what is known of the machine."""
    fields = {"protocol": 1, "agent_version": "0.1.0", "boot_id": instance, "applied_revision": 0}
    fields |= {"instance": instance, "sequence": sequence, "sent_at": time.time(), "digest": "d"}
    sync_receive(
        machine.id, SyncRequest.model_validate({**fields, "address": "10.20.0.11", "runtime": "docker"})
    )


def state_of(run: Run) -> str:
    cluster_pass(run.cluster_id)
    run.refresh_from_db()
    return run.state


def test_nothing_is_placed_while_two_agents_are_heard_and_a_while_after(house):
    machine = make.machine_make(house, "gpu-01")
    heard(machine, "original", 1)
    heard(machine, "copy", 1)
    assert Machine.objects.get().state == "ready"  # as after a restart of its agent
    heard(machine, "original", 2)
    run = make.run_pending(house, document=make.document_make(gpus=8, machines=1))

    assert state_of(run) == "Pending"
    told = explanation_of(run)
    assert [row["text"] for row in told["machines"]] == [SENTENCE]
    assert "Stop the second agent of gpu-01" in told["changes"][0]["text"]
    contested = Machine.objects.get()
    assert contested.state == "contested"

    # The first message begins it, a later one makes it last; the sweep ends it a minute after the last one.
    heard(machine, "original", 3)
    assert Machine.objects.get().version == contested.version
    two_agents_forget()
    assert state_of(run) == "Pending"
    Machine.objects.update(two_agents_at=timezone.now() - timedelta(seconds=61))
    two_agents_forget()
    two_agents_forget()

    again = Machine.objects.get()
    assert (again.state, again.version) == ("ready", contested.version + 1)
    assert state_of(run) == "Starting"


@pytest.mark.parametrize("count", [2, 3, 7])
def test_agents_that_speak_in_strict_turns_are_told_however_many_they_are(house, count):
    machine = make.machine_make(house, "gpu-01")
    for number in range(count):
        heard(machine, f"agent-{number}", 1)
        assert Machine.objects.get().state == "ready"  # as after restarts of one agent
    heard(machine, "agent-0", 2)
    assert Machine.objects.get().state == "contested"


def test_an_agent_that_restarts_again_and_again_is_one(house):
    machine = make.machine_make(house, "gpu-01")
    for number in range(5):
        heard(machine, f"start-{number}", 1)
        heard(machine, f"start-{number}", 2)
    assert Machine.objects.get().state == "ready"


def test_of_the_agents_replaced_long_ago_only_the_last_is_remembered(house):
    machine = make.machine_make(house, "gpu-01")
    for number in range(3):
        heard(machine, f"start-{number}", 1)
    ReplacedAgent.objects.update(at=timezone.now() - timedelta(hours=2))
    heard(machine, "start-2", 2)
    assert list(ReplacedAgent.objects.values_list("instance", flat=True)) == ["start-0", "start-1"]
    heard(machine, "start-3", 1)
    assert [each.instance for each in ReplacedAgent.objects.all()] == ["start-2"]
    heard(machine, "start-2", 3)
    assert Machine.objects.get().state == "contested"
