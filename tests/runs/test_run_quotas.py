"""Quotas as a pass keeps and tells them, in the database."""

from datetime import timedelta

import pytest

from machines.models import WorkspacePool
from runs.explanations import explanation_of
from runs.models import Reservation, Run
from runs.presentation import run_reason
from runs.scheduling.passes import cluster_pass
from tenancy.models import Workspace
from tests import factories
from tests.runs.explained import audio_make, explained, fresh, holding, machines_told, waiting
from tests.support.gangs import Gang, placed

pytestmark = pytest.mark.django_db


def submitted(house, name, *, machines=1) -> Gang:
    document = factories.document_make(name, gpus=8 * machines, machines=machines)
    return Gang(factories.run_pending(house, name, document=document))


def test_a_cap_holds_and_is_told_as_policy(house, machines):
    WorkspacePool.objects.filter(workspace=house.workspace).update(gpu_cap=8)
    first, second = submitted(house, "first"), submitted(house, "second")
    cluster_pass(house.cluster.id)
    assert [(gang.fresh.state, gang.fresh.wait_kind) for gang in (first, second)] == [
        ("Starting", ""),
        ("Pending", "policy"),
    ]
    assert explanation_of(second.fresh)["policy"]["text"] == (
        "Quota: vision may use 8 GPUs of pool h100; 8 are in use (8 by first), 8 are asked, 8 too many."
    )
    assert not Reservation.objects.exists()


def test_the_quota_is_named_first_where_there_is_no_room_either(house, machines):
    WorkspacePool.objects.filter(workspace=house.workspace).update(gpu_cap=8)
    placed(house, "holder", machines=1)
    large = submitted(house, "large", machines=2)
    cluster_pass(house.cluster.id)
    assert large.fresh.wait_kind == "policy"
    assert (
        run_reason(large.fresh)
        == explanation_of(large.fresh)["headline"]
        == (
            "This run would pass its workspace's cap in pool h100. 2 machines with 8 free H100s on one fabric are "
            "needed; fabric ib-a has 0."
        )
    )


def test_what_is_left_of_a_cap_is_kept_for_the_run_that_goes_first(house, machines):
    """`large` needs the whole cap of 16, of which 8 are used: `small` would fit, and would keep it waiting for ever."""
    WorkspacePool.objects.filter(workspace=house.workspace).update(gpu_cap=16)
    placed(house, "holder", machines=1)
    large, small = submitted(house, "large", machines=2), submitted(house, "small")
    cluster_pass(house.cluster.id)

    assert [(gang.fresh.state, gang.fresh.wait_kind) for gang in (large, small)] == [
        ("Pending", "policy"),
        ("Pending", "order"),
    ]
    assert (
        run_reason(small.fresh) == "large goes first; what is left of this workspace's quota is kept for it."
    )
    assert explanation_of(small.fresh)["policy"]["text"] == (
        "Quota: vision may use 16 GPUs of pool h100; 8 are in use (8 by holder), 8 are asked; "
        "what is left is kept for large, which goes first."
    )


def test_what_a_guarantee_leaves_at_a_run_s_own_moment_is_kept_for_it(house, three):
    """Beside the 8 that are guaranteed to speech, `large` can have 16 in an hour, if `small` takes none of them."""
    audio = audio_make(house)
    speech = Workspace.objects.create(organization=house.organization, slug="speech", name="Speech")
    WorkspacePool.objects.create(workspace=speech, pool=house.pool, guaranteed_gpus=8)
    holding(house, "llm-7", three[0], limit_in=timedelta(hours=1), workspace=audio)
    large = waiting(house, "large", gpus=16, machines=2, priority=10)
    small = waiting(house, "small", gpus=8, machines=1)
    Run.objects.filter(id=small.id).update(workspace=audio)
    told = explained(small)

    assert [(run.state, run.wait_kind) for run in (fresh(large), fresh(small))] == [
        ("Pending", "policy"),
        ("Pending", "order"),
    ]
    assert run_reason(fresh(small)) == (
        "A run of another workspace goes first; what quotas leave is kept for it."
    )
    assert told["policy"]["text"] == (
        "Quota: what is left of pool h100 is kept for a run of another workspace, which goes first."
    )
    assert machines_told(told)[0] == (
        "Kept for a run that goes first",
        "gpu-03",
        (
            "Pool h100: what quotas leave there is kept for a run of another workspace, which goes first; "
            "8 of 8 GPUs free"
        ),
    )
