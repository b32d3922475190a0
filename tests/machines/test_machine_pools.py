"""Pools: what owners make of them, what is refused, and that placement sees it at once."""

import pytest
from django.db import IntegrityError, transaction

from common.errors import Conflict, Forbidden, Invalid, NotFound
from machines.drives import DriveOrder, drive_create
from machines.models import JoinToken, Machine, Pool
from machines.operations import machine_remove
from machines.pools import (
    PoolOrder,
    Share,
    machines_move,
    pool_change,
    pool_create,
    pool_data,
    pool_get,
    pool_remove,
)
from machines.services import join_token_issue, machine_join
from runs.models import Run
from runs.scheduling.passes import cluster_pass
from runs.scheduling.snapshot import cluster_snapshot
from tenancy.models import AuditEvent
from tests import factories as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def ana(house):
    return make.actor_of(house.ana)


def placed(house, name="ddp-resnet50"):
    cluster_pass(house.cluster.id)
    return Run.objects.get(name=name).state


def event(action):
    return AuditEvent.objects.filter(action=action).latest("id")


def test_a_run_starts_once_a_pool_is_made_filled_and_opened(house, ana):
    pool_change(pool=house.pool, actor=ana, workspaces={})
    machines = [make.machine_make(house, f"gpu-0{number}") for number in (1, 2)]
    make.run_pending(house)
    assert placed(house) == "Pending"

    pool = pool_create(cluster=house.cluster, order=PoolOrder("fast"), actor=ana)
    machines_move(machines=machines, pool="fast", actor=ana)
    assert placed(house) == "Pending"
    pool_change(pool=pool, actor=ana, title="Fast ones", workspaces={"vision": Share(16, 8)})

    assert placed(house) == "Starting"
    open_now = {"name": "fast", "title": "Fast ones", "workspaces": {"vision": _share(16, 8)}}
    assert pool_data(pool_get(house.cluster, "fast")) == open_now
    assert (event("pool.change").before["workspaces"], event("pool.change").after) == ({}, open_now)
    moved = AuditEvent.objects.filter(action="machine.move").order_by("target")
    assert [(each.target, each.before, each.after) for each in moved] == [
        ("gpu-01", {"pool": "h100"}, {"pool": "fast"}),
        ("gpu-02", {"pool": "h100"}, {"pool": "fast"}),
    ]


def _share(cap, guaranteed):
    return {"gpu_cap": cap, "guaranteed_gpus": guaranteed}


def test_a_cap_keeps_a_run_waiting_and_its_end_starts_it(house, ana):
    for number in (1, 2):
        make.machine_make(house, f"gpu-0{number}")
    pool_change(pool=house.pool, actor=ana, workspaces={"vision": Share(gpu_cap=8)})
    make.run_pending(house)
    assert placed(house) == "Pending"

    pool_change(pool=house.pool, actor=ana, workspaces={"vision": Share()})

    assert placed(house) == "Starting"


def test_placement_sees_a_new_name_at_once_and_who_read_the_old_one_does_nothing(house, ana):
    machine = make.machine_make(house, "gpu-01")
    cluster_snapshot(house.cluster)  # remembered: the database's triggers must note what changes
    version = machine.version

    pool_change(pool=house.pool, actor=ana, name="hopper")

    assert list(cluster_snapshot(house.cluster).snapshot.topology.pools) == ["hopper"]
    assert Machine.objects.get().version == version + 1
    assert pool_data(pool_get(house.cluster, "hopper"))["workspaces"] == {"vision": _share(None, 0)}


def test_what_is_no_change_is_not_noted(house, ana):
    pool_change(pool=house.pool, actor=ana, name="h100", title="H100", workspaces={"vision": Share()})
    pool_change(pool=house.pool, actor=ana)
    machine = make.machine_make(house, "gpu-01")
    machines_move(machines=[machine], pool="h100", actor=ana)

    assert not AuditEvent.objects.exists()


def test_all_that_is_wrong_with_an_order_is_told_at_once(house, ana):
    shares = {"vision": Share(8, 16), "vision2": Share()}
    with pytest.raises(Invalid) as refused:
        pool_create(cluster=house.cluster, order=PoolOrder("No", "a\nb", shares), actor=ana)

    told = {each.path: each.message for each in refused.value.errors}
    assert told["metadata.name"].startswith("`No` is not a name.")
    assert "has control characters" in told["spec.title"]
    assert told["spec.workspaces.vision.guaranteed_gpus"] == (
        "vision can't be guaranteed 16 GPUs when it may use 8 at most."
    )
    assert told["spec.workspaces.vision2"] == "There is no workspace `vision2` here."
    assert len(told) == 4
    with pytest.raises(Invalid, match=r"has 41 characters. Use at most 40\."):
        pool_create(cluster=house.cluster, order=PoolOrder("p" * 41), actor=ana)
    with pytest.raises(Conflict, match=r"main has a pool `h100` already\."):
        pool_create(cluster=house.cluster, order=PoolOrder("h100"), actor=ana)
    assert Pool.objects.count() == 1


def naming(name: str, *, grouped: bool = False):
    """A document that asks for the pool h100 by its name."""
    document = make.document_make(name)
    template = document["spec"]["task_template"]
    template["requested_resources"]["node_selection"] = {"mode": "Pools", "pools": ["h100"]}
    if grouped:
        del document["spec"]["task_template"]
        document["spec"]["worker_groups"] = [{"name": "trainer", "task_template": template}]
    return document


@pytest.mark.parametrize("grouped", [False, True])
def test_neither_renamed_nor_removed_while_runs_name_it(house, ana, grouped):
    run = make.run_pending(house, "llm-7", document=naming("llm-7", grouped=grouped))
    make.run_pending(house, "any")

    with pytest.raises(Conflict, match=r"h100 can't be renamed while runs that wait or run name it: llm-7\."):
        pool_change(pool=house.pool, actor=ana, name="hopper")
    with pytest.raises(Conflict, match=r"h100 can't be removed while runs that wait or run name it: llm-7\."):
        pool_remove(pool=house.pool, actor=ana)
    assert pool_get(house.cluster, "h100").join_tokens.count() == 0

    Run.objects.filter(id=run.id).update(state="Stopped", ended_at=run.queued_at)
    pool_change(pool=house.pool, actor=ana, name="hopper")


def test_not_removed_while_machines_are_in_it_or_drives_lie_on_it(house, ana):
    token, secret = join_token_issue(pool=house.pool, actor=ana)
    machines = [make.machine_make(house, f"gpu-0{number}") for number in range(1, 5)]
    order = DriveOrder(name="imagenet", kind="shared", path="/srv/imagenet", pool="h100")
    drive = drive_create(cluster=house.cluster, order=order, actor=ana)

    with pytest.raises(Conflict) as refused:
        pool_remove(pool=house.pool, actor=ana)
    assert refused.value.message == (
        "h100 can't be removed while machines are in it: gpu-01, gpu-02, gpu-03 and others. Move them to another "
        "pool first."
    )
    assert JoinToken.objects.filter(id=token.id).exists()  # all or nothing

    pool_create(cluster=house.cluster, order=PoolOrder("spare"), actor=ana)
    machines_move(machines=machines[1:], pool="spare", actor=ana)
    machine_remove(machine=machines[0], actor=ana)
    with pytest.raises(Conflict, match=r"while drives lie on its machines: imagenet\. Remove them first\."):
        pool_remove(pool=house.pool, actor=ana)
    drive.delete()
    pool_remove(pool=house.pool, actor=ana)

    assert list(Pool.objects.values_list("slug", flat=True)) == ["spare"]
    assert event("pool.remove").before["workspaces"] == {"vision": _share(None, 0)}
    # The removed machine's row stays, in no pool; nobody joins with the pool's token any more.
    assert Machine._base_manager.get(name="gpu-01").pool is None
    with pytest.raises(Forbidden, match="not valid"):
        machine_join(token=secret.value, name="gpu-09", runtime="docker", agent_version="0.1.0")
    with pytest.raises(NotFound):
        pool_remove(pool=house.pool, actor=ana)


def test_the_database_holds_no_machine_without_a_pool(house):
    make.machine_make(house, "gpu-01")
    with pytest.raises(IntegrityError, match="machine_has_a_pool"), transaction.atomic():
        Machine.objects.update(pool=None)
    with pytest.raises(IntegrityError, match="machine_has_a_pool"), transaction.atomic():
        house.pool.delete()
