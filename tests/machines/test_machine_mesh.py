"""Subnets of the mesh: who gets which, whose key is whose, and what is said where there is none."""

import base64

import pytest
from django.db import IntegrityError, transaction

from common.errors import Invalid
from machines.mesh import lowest_free, mesh_order, mesh_range_set, mesh_store, mesh_subnet
from machines.models import Cluster, Machine
from machines.operations import machine_remove
from tenancy.models import AuditEvent
from tests import factories
from wire.mesh import MeshReport

pytestmark = pytest.mark.django_db


def report(number: int, **more: str) -> MeshReport:
    key = base64.b64encode(number.to_bytes(32, "big")).decode()
    return MeshReport(public_key=key, **{"endpoint": f"10.20.0.{number}:51820"} | more)


def machine_of(house: factories.House, number: int) -> Machine:
    machine = factories.machine_make(house, f"gpu-{number:02}", gpus=0, fabric=None)
    mesh_store(machine, report(number))
    return fresh(machine)


def fresh(machine: Machine) -> Machine:
    return Machine.objects.select_related("cluster").get(id=machine.id)


def cluster_resize(house: factories.House, mesh_range: str) -> None:
    Cluster.objects.filter(id=house.cluster.id).update(mesh_range=mesh_range)
    house.cluster.refresh_from_db()


@pytest.mark.parametrize(
    ("taken", "room", "free"), [([], 4, 0), ([0, 1, 3], 4, 2), ([0, 1], 2, None), ([], 0, None), ([5], 4, 0)]
)
def test_the_lowest_free_number_is_taken(taken, room, free):
    assert lowest_free(taken, room) == free


def test_machines_get_subnets_of_their_own_and_keep_them(house):
    one, two = machine_of(house, 1), machine_of(house, 2)
    assert [mesh_subnet(one), mesh_subnet(two)] == ["100.64.0.0/24", "100.64.1.0/24"]
    revision = one.desired_revision
    mesh_store(one, report(1))
    assert fresh(one).desired_revision == revision, "nothing new"
    mesh_store(one, report(1, endpoint="203.0.113.9:51820"))
    assert fresh(one).desired_revision == revision + 1
    mesh_store(one, report(7))
    assert (mesh_subnet(fresh(one)), fresh(one).mesh_key) == ("100.64.0.0/24", report(7).public_key)
    with pytest.raises(IntegrityError), transaction.atomic():
        Machine.objects.filter(id=two.id).update(mesh_number=0)
    order = mesh_order(fresh(one), [fresh(one), fresh(two)])
    assert [(p.machine, str(p.subnet), p.endpoint) for p in order.peers] == [
        ("gpu-02", "100.64.1.0/24", "10.20.0.2:51820")
    ]


def test_a_copied_disk_is_told(house):
    machine_of(house, 1)
    copy = factories.machine_make(house, "copy", gpus=0, fabric=None)
    mesh_store(copy, report(1))
    copy = fresh(copy)
    assert copy.mesh_flaw == (
        "It has the WireGuard key of gpu-01, as copies of a disk do. Remove mesh.key from its agent's state "
        "directory and restart the agent."
    )
    assert (copy.mesh_key, copy.on_mesh, mesh_order(copy, [])) == ("", False, None)
    mesh_store(copy, report(2))
    assert (fresh(copy).mesh_flaw, mesh_subnet(fresh(copy))) == ("", "100.64.1.0/24")


def test_a_range_that_is_used_up_is_told_and_a_removed_machine_leaves_its_place(
    house, django_capture_on_commit_callbacks
):
    cluster_resize(house, "10.192.0.0/23")
    one, two, three = (machine_of(house, number) for number in (1, 2, 3))
    assert three.mesh_flaw == (
        "The mesh's range 10.192.0.0/23 has room for 2 machines, and all of it is given out. Set a larger range for "
        "the cluster, or remove machines that are gone."
    )
    assert (three.on_mesh, mesh_order(three, [])) == (False, None)
    with django_capture_on_commit_callbacks(execute=True):
        machine_remove(machine=two, actor=factories.actor_of(house.ana))
    three = fresh(three)
    assert (three.mesh_flaw, mesh_subnet(three), three.on_mesh) == ("", "10.192.1.0/24", True)
    assert mesh_subnet(fresh(one)) == "10.192.0.0/24"


def test_what_an_agent_says_against_its_mesh_counts(house):
    machine = machine_of(house, 1)
    mesh_store(machine, report(1, flaw="This kernel has no WireGuard."))
    assert (fresh(machine).mesh_flaw, fresh(machine).on_mesh) == ("This kernel has no WireGuard.", False)
    mesh_store(machine, None)
    assert (fresh(machine).mesh_flaw, fresh(machine).mesh_key, fresh(machine).mesh_number) == ("", "", 0)
    assert not fresh(machine).on_mesh, "its agent has lost WireGuard"


@pytest.mark.parametrize(
    ("mesh_range", "said"),
    [
        ("mesh", "`mesh` is no IPv4 range. It looks like 10.192.0.0/10."),
        ("10.192.0.1/10", "`10.192.0.1/10` is no IPv4 range. It looks like 10.192.0.0/10."),
        ("fd00::/8", "`fd00::/8` is no IPv4 range. It looks like 10.192.0.0/10."),
        (
            "10.192.0.0/21",
            (
                "10.192.0.0/21 is too small: every machine gets a /24 of it, and it has to have room for 16 "
                "machines. Take a /20 or a larger one."
            ),
        ),
        (
            "8.0.0.0/10",
            "8.0.0.0/10 belongs to others. Take one of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10.",
        ),
        (
            "127.0.0.0/16",
            "127.0.0.0/16 belongs to others. Take one of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10.",
        ),
        ("10.20.0.0/16", "10.20.0.0/16 overlaps with the machines' own network: gpu-01 is 10.20.0.11 there."),
    ],
)
def test_a_range_that_cannot_be_is_refused_with_its_reason(house, mesh_range, said):
    machine_of(house, 1)
    with pytest.raises(Invalid) as refused:
        mesh_range_set(cluster=house.cluster, mesh_range=mesh_range, actor=factories.actor_of(house.ana))
    assert str(refused.value.message) == said
    assert Cluster.objects.get(id=house.cluster.id).mesh_range == "100.64.0.0/10"


def test_another_range_gives_all_machines_other_subnets(house):
    ana = factories.actor_of(house.ana)
    one, two = machine_of(house, 1), machine_of(house, 2)
    Machine.objects.filter(id=two.id).update(mesh_number=5000)
    mesh_range_set(cluster=house.cluster, mesh_range="10.192.0.0/20", actor=ana)
    assert [mesh_subnet(fresh(one)), mesh_subnet(fresh(two))] == ["10.192.0.0/24", "10.192.1.0/24"]
    event = AuditEvent.objects.get(action="cluster.mesh")
    assert (event.before, event.after) == ({"range": "100.64.0.0/10"}, {"range": "10.192.0.0/20"})
    assert fresh(one).desired_revision > one.desired_revision
    mesh_range_set(cluster=house.cluster, mesh_range="10.192.0.0/20", actor=ana)
    assert AuditEvent.objects.filter(action="cluster.mesh").count() == 1


def test_a_larger_range_has_room_for_those_that_found_none(house):
    cluster_resize(house, "10.192.0.0/23")
    _, two, three = (machine_of(house, number) for number in (1, 2, 3))
    mesh_store(two, report(2, flaw="UDP port 51820 is taken."))
    mesh_range_set(cluster=house.cluster, mesh_range="10.192.0.0/20", actor=factories.actor_of(house.ana))
    assert (mesh_subnet(fresh(three)), fresh(three).mesh_flaw, fresh(three).on_mesh) == (
        "10.192.2.0/24",
        "",
        True,
    )
    assert fresh(two).mesh_flaw == "UDP port 51820 is taken.", "what its agent says stays"
