"""What operators make of a fabric: placement sees it at once, and what was found stays what it is."""

import pytest
from django.db import IntegrityError, transaction

from common.errors import NotFound
from machines.fabric_changes import fabric_change
from machines.models import Fabric, Machine
from runs.scheduling.snapshot import cluster_snapshot
from tenancy.models import AuditEvent
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def fabric(house, machines) -> Fabric:
    return Fabric.objects.get(name="ib-a")


@pytest.fixture
def ana(house):
    return factories.actor_of(house.ana)


def test_placement_sees_a_new_name_and_a_new_use_at_once(house, fabric, ana):
    cluster_snapshot(house.cluster)  # remembered: the database's triggers must note what changes
    versions = dict(Machine.objects.values_list("name", "version"))

    fabric_change(fabric=fabric, name="east", storage=True, actor=ana)

    fabrics = cluster_snapshot(house.cluster).snapshot.topology.fabrics
    assert (list(fabrics.names), fabrics.storage.tolist()) == (["east"], [True])
    assert {name: version + 1 for name, version in versions.items()} == dict(
        Machine.objects.values_list("name", "version")
    )
    fabric.refresh_from_db()
    assert fabric.key == "0xfe800000000000c1"


def test_what_is_no_change_is_not_noted(fabric, ana):
    fabric_change(fabric=fabric, name="ib-a", storage=False, actor=ana)
    fabric_change(fabric=fabric, actor=ana)

    assert not AuditEvent.objects.filter(action="fabric.change").exists()


def test_a_fabric_that_has_gone_is_not_changed(fabric, ana):
    Machine.objects.get(name="gpu-01").rdma_ports.all().delete()
    Machine.objects.get(name="gpu-02").rdma_ports.all().delete()
    Fabric.objects.filter(id=fabric.id).delete()

    with pytest.raises(NotFound, match=r"ib-a is gone\."):
        fabric_change(fabric=fabric, storage=True, actor=ana)


def test_the_database_holds_one_fabric_of_a_name(house, fabric):
    with pytest.raises(IntegrityError), transaction.atomic():
        Fabric.objects.create(cluster=house.cluster, key="0x2", name="ib-a")
