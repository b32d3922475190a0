"""Several groups of workers in one run: one gang, ranks running through the groups, names of their own."""

import copy
from typing import Any

import pytest

from runs.models import Allocation
from runs.scheduling.passes import cluster_pass
from tests import factories
from tests.support.gangs import Gang, replaced

pytestmark = pytest.mark.django_db


def grouped(house, name="rlhf") -> dict[str, Any]:
    """A trainer with 8 GPUs on each of two machines and one actor with 2 GPUs on another machine."""
    document = factories.document_make(name, gpus=16, machines=2)
    trainer = document["spec"].pop("task_template")
    actor = copy.deepcopy(trainer)
    actor["command"], actor["args"] = "actor", []
    actor["requested_resources"]["gpu_requests"]["count"] = 2
    actor["requested_resources"]["machines"] = 1
    actor["time_limit_seconds"] = 600
    document["spec"]["worker_groups"] = [
        {"name": "train", "task_template": trainer},
        {"name": "actor", "task_template": actor},
    ]
    return document


@pytest.fixture
def gang(house):
    for name in ("gpu-01", "gpu-02", "gpu-03"):
        factories.machine_make(house, name)
    return Gang(factories.run_pending(house, "rlhf", document=grouped(house)))


def test_workers_are_named_after_their_groups_and_ranked_through_them(gang):
    workers = gang.run.workers.order_by("rank").values_list("rank", "name", "group", "group_rank")
    assert list(workers) == [
        (0, "rlhf-train-0", "train", 0),
        (1, "rlhf-train-1", "train", 1),
        (2, "rlhf-actor-0", "actor", 0),
    ]


def test_the_groups_are_placed_as_one_gang_each_in_its_own_shape(gang):
    replaced(gang)
    members = gang.members
    assert len({member.machine_id for member in members}) == 3, "one worker of a run on each machine"
    gpus = [Allocation.objects.filter(assignment=each, gpu__isnull=False).count() for each in members]
    assert gpus == [8, 8, 2]
    assert [each.launch["command"] for each in members] == ["bash", "bash", "actor"]
    env = members[2].launch["env"]
    wanted = {
        "RANK": "2",
        "WORLD_SIZE": "3",
        "ASTRAEUS_GPU_COUNT": "2",
        "ASTRAEUS_GROUP_NAME": "actor",
        "ASTRAEUS_GROUP_RANK": "0",
        "ASTRAEUS_GROUP_SIZE": "1",
        "MASTER_ADDR": members[0].machine.address,
    }
    assert {name: env[name] for name in wanted} == wanted


def test_no_group_starts_alone(house):
    for name in ("gpu-01", "gpu-02"):
        factories.machine_make(house, name)
    gang = Gang(factories.run_pending(house, "rlhf", document=grouped(house)))
    cluster_pass(house.cluster.id)
    assert gang.fresh.state == "Pending"
    assert not Allocation.objects.exists()


def test_all_groups_meet_at_one_barrier(gang):
    replaced(gang)
    gang.say(0, "ready")
    gang.say(1, "ready")
    assert gang.advance() == ("Starting", "Starting together: 2 of 3 ready")
    gang.say(2, "ready")
    gang.advance()
    assert gang.phases() == ["start", "start", "start"]
