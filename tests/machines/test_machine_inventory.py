"""What agents found on their machines, and what people say about them."""

import threading

import pytest
from django.db import connection

from common.errors import Invalid
from machines.inventory import inventory_store
from machines.models import Fabric, Machine, MachineLabel
from machines.services import (
    machine_cordon,
    machine_label_set,
    machine_label_unset,
    machine_uncordon,
)
from machines.signals import cluster_changed
from runs.scheduling.snapshot import cluster_load
from tenancy.models import AuditEvent
from tests import factories
from wire.agent_messages import Observed
from wire.inventory import GpuReport, Inventory, PortReport

pytestmark = pytest.mark.django_db
RACK = "topology.astraeus.io/rack"


@pytest.fixture
def machine(house) -> Machine:
    return factories.machine_make(house, "gpu-01", gpus=0, fabric=None, rack=None)


@pytest.fixture
def ana(house):
    return factories.actor_of(house.ana)


def gpu(index: int, **values) -> GpuReport:
    product = "NVIDIA H100 80GB HBM3"
    made = {"index": index, "uuid": f"GPU-{index}", "product": product, "memory_bytes": 80 * factories.GIB}
    return GpuReport.model_validate({**made, **values})


def port(device: str, manager: str | None = "0xfe80a1", **values) -> PortReport:
    made = {
        "device": device,
        "port": 1,
        "link_layer": "InfiniBand",
        "state": "ACTIVE",
        "rate_gbps": 400,
        "subnet_manager": manager,
    }
    return PortReport.model_validate({**made, **values})


def store(machine: Machine, *, gpus=(), ports=(), labels=None, busy=(), **values) -> bool:
    inventory = Inventory.model_validate(
        {
            "cpu_cores": 96,
            "memory_bytes": 1024 * factories.GIB,
            "gpus": gpus,
            "rdma_ports": ports,
            "labels": labels or {},
            **values,
        }
    )
    fresh = Machine.objects.get(id=machine.id)
    return inventory_store(machine=fresh, observed=Observed(inventory=inventory, busy_ports=busy))


def test_what_differs_is_stored_and_told_once(machine):
    heard = []

    def listener(cluster_id, **_):
        heard.append(cluster_id)

    cluster_changed.connect(listener)
    try:
        everything = {
            "gpus": (gpu(0), gpu(1)),
            "ports": (port("mlx5_0"),),
            "labels": {RACK: "r1"},
            "busy": (29501,),
        }
        assert store(machine, **everything) is True
        assert store(machine, **everything) is False
    finally:
        cluster_changed.disconnect(listener)
    assert heard == [machine.cluster_id]
    found = Machine.objects.get(id=machine.id)
    assert (found.version, found.cpu_cores, found.busy_ports) == (machine.version + 1, 96, [29501])
    assert list(found.gpus.values_list("index", "model", "health")) == [
        (0, "H100", "healthy"),
        (1, "H100", "healthy"),
    ]
    assert list(found.rdma_ports.values_list("device", "fabric__name")) == [("mlx5_0", "ib-a")]


def test_a_gpu_that_is_gone_keeps_its_row_and_may_come_back(machine):
    store(machine, gpus=(gpu(0), gpu(1)))
    store(machine, gpus=(gpu(1, health="suspect", evidence="row remap pending"),))
    assert list(machine.gpus.values_list("index", "present", "health", "evidence")) == [
        (0, False, "healthy", ""),
        (1, True, "suspect", "row remap pending"),
    ]

    store(machine, gpus=(gpu(0), gpu(1)))
    assert list(machine.gpus.values_list("present", "health")) == [(True, "healthy")] * 2
    assert machine.gpus.count() == 2


def test_a_port_that_is_gone_is_gone(machine):
    store(machine, ports=(port("mlx5_0"), port("mlx5_1", state="DOWN")))
    assert [(each.device, each.up) for each in machine.rdma_ports.all()] == [
        ("mlx5_0", True),
        ("mlx5_1", False),
    ]
    store(machine, ports=(port("mlx5_1"),))

    assert [(each.device, each.up) for each in machine.rdma_ports.all()] == [("mlx5_1", True)]


def test_ports_of_one_subnet_manager_are_one_fabric(house, machine):
    second = factories.machine_make(house, "gpu-02", gpus=0, fabric=None, rack=None)
    store(machine, ports=(port("mlx5_0", "0xa"), port("mlx5_1", "0xb"), port("mlx5_2", None)))
    store(second, ports=(port("mlx5_0", "0xa"), port("roce0", "0xb", link_layer="Ethernet")))

    assert list(machine.rdma_ports.values_list("device", "fabric__name")) == [
        ("mlx5_0", "ib-a"),
        ("mlx5_1", "ib-b"),
        ("mlx5_2", None),
    ]
    assert list(second.rdma_ports.values_list("device", "fabric__name")) == [
        ("mlx5_0", "ib-a"),
        ("roce0", None),
    ]


def test_a_guessed_fabric_says_so(machine):
    store(machine, ports=(port("mlx5_0", "fe80::/lid 1", guessed=True),))

    assert Fabric.objects.get().guessed is True


@pytest.mark.django_db(transaction=True)
def test_new_fabrics_found_at_the_same_moment_get_names_of_their_own(house):
    """Two fabrics of one name would be one for placement, and a gang across both hangs."""
    count = 6
    fleet = [factories.machine_make(house, f"gpu-{n}", gpus=0, fabric=None, rack=None) for n in range(count)]
    barrier, errors = threading.Barrier(count), []

    def report(number: int) -> None:
        try:
            barrier.wait(timeout=10)
            store(fleet[number], ports=(port("mlx5_0", f"0x{number}"),))
        except Exception as error:  # noqa: BLE001 - handed over to the test
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=report, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert errors == []
    names = sorted(Fabric.objects.values_list("name", flat=True))
    assert names == ["ib-a", "ib-b", "ib-c", "ib-d", "ib-e", "ib-f"]


# --- Labels ------------------------------------------------------------------------------------------


def labels_seen(machine):
    """The labels of the only machine, as placement sees them."""
    return dict(cluster_load(machine.cluster).snapshot.topology.label_pairs)


def test_a_label_that_was_set_wins_and_goes_back_to_what_was_found(machine, ana):
    store(machine, labels={RACK: "r1", "zone": "a"})
    machine_label_set(machine=machine, key=RACK, value="r9", actor=ana)
    assert labels_seen(machine) == {RACK: "r9", "zone": "a"}

    store(machine, labels={RACK: "r2"})
    assert labels_seen(machine) == {RACK: "r9"}
    machine_label_unset(machine=machine, key=RACK, actor=ana)
    assert labels_seen(machine) == {RACK: "r2"}
    audit = AuditEvent.objects.order_by("id")
    assert [(event.action, event.before, event.after) for event in audit] == [
        ("machine.label", {RACK: None}, {RACK: "r9"}),
        ("machine.label", {RACK: "r9"}, {RACK: None}),
    ]


def test_taking_back_what_was_never_set_changes_nothing(machine, ana):
    store(machine, labels={RACK: "r1"})
    machine_label_unset(machine=machine, key=RACK, actor=ana)

    assert labels_seen(machine) == {RACK: "r1"}
    assert not AuditEvent.objects.exists()


@pytest.mark.parametrize(
    ("key", "value", "path"), [("no key!", "x", "key"), (RACK, "no value!", "value"), ("", "x", "key")]
)
def test_a_label_with_bad_syntax_is_refused_with_a_sentence(machine, ana, key, value, path):
    with pytest.raises(Invalid) as refused:
        machine_label_set(machine=machine, key=key, value=value, actor=ana)

    assert [error.path for error in refused.value.errors] == [path]
    assert not MachineLabel.objects.exists()


# --- Cordon ------------------------------------------------------------------------------------------


def test_cordon_and_uncordon(machine, ana):
    machine_cordon(machine=machine, actor=ana, reason="new cable")
    found = Machine.objects.get(id=machine.id)
    assert (found.state, found.cordoned_by, found.cordon_reason) == ("cordoned", "ana", "new cable")
    first = found.cordoned_at
    machine_cordon(machine=machine, actor=ana, reason="again")
    found.refresh_from_db()
    assert (found.cordoned_at, found.cordon_reason) == (first, "new cable")

    machine_uncordon(machine=machine, actor=ana)
    found.refresh_from_db()
    assert (found.state, found.cordoned_by, found.cordon_reason) == ("ready", "", "")
    assert found.version > machine.version
