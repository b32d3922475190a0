"""What agents say of health, hardware and checks: stored as it came, each event once."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, transaction

from machines.channel import sync_receive
from machines.health_events import health_events_prune
from machines.inventory import inventory_store
from machines.models import HealthEvent, Machine
from tests import factories
from wire.agent_messages import Observed, SyncRequest
from wire.inventory import GpuReport, Inventory, PortReport
from wire.machine_facts import CheckReport, GpuInstance, HostReport, SplitGpu
from wire.machine_facts import HealthEvent as Told

pytestmark = pytest.mark.django_db


@pytest.fixture
def machine(house) -> Machine:
    return factories.machine_make(house, "gpu-01", gpus=0, fabric=None, rack=None)


def store(machine: Machine, *, skew: float = 0, **values) -> bool:
    inventory = Inventory.model_validate({"cpu_cores": 96, "memory_bytes": 1 << 40, **values})
    fresh = Machine.objects.get(id=machine.id)
    return inventory_store(
        machine=fresh, observed=Observed(inventory=inventory), skew=timedelta(seconds=skew)
    )


def told(event: str, **values) -> Told:
    made = {
        "id": event,
        "at": 1_700_000_000,
        "subject": "gpu GPU-3",
        "name": "GPU 3",
        "was": "healthy",
        "health": "faulty",
        "evidence": "XID 79: it has fallen off the bus",
    }
    return Told.model_validate(made | values)


def test_each_event_is_stored_once_by_the_consoles_clock(machine):
    store(machine, health_events=(told("e1"),), skew=30)
    store(machine, health_events=(told("e1"), told("e2", health="suspect")), skew=30)

    (second, first) = HealthEvent.objects.order_by("-id")
    assert (first.event_id, second.event_id) == ("e1", "e2")
    assert first.at == datetime.fromtimestamp(1_700_000_030, UTC)
    assert (first.subject, first.name, first.was, first.health) == ("gpu GPU-3", "GPU 3", "healthy", "faulty")
    assert first.evidence == "XID 79: it has fallen off the bus"


def test_an_event_is_never_in_the_future(machine):
    store(machine, health_events=(told("e1", at=4_000_000_000),))
    assert HealthEvent.objects.get().at.timestamp() <= time.time() + 1


def test_two_machines_may_tell_the_same_event(house, machine):
    """A disk that was cloned brings its memory along."""
    other = factories.machine_make(house, "gpu-02", gpus=0, fabric=None, rack=None)
    store(machine, health_events=(told("e1"),))
    store(other, health_events=(told("e1"),))
    assert HealthEvent.objects.count() == 2


def test_events_older_than_half_a_year_go(machine):
    now = time.time()
    store(machine, health_events=(told("old", at=now - 181 * 86_400), told("new", at=now - 179 * 86_400)))
    health_events_prune()
    assert list(HealthEvent.objects.values_list("event_id", flat=True)) == ["new"]


def test_what_only_people_see_is_stored_and_moves_no_run(machine):
    store(machine)
    found = {
        "host": HostReport(cpu_product="AMD EPYC 9654", sockets=2, driver_version="570.124.06"),
        "split_gpus": (
            SplitGpu(
                index=0,
                uuid="GPU-0",
                product="NVIDIA H100 PCIe",
                memory_bytes=80 << 30,
                instances=(GpuInstance(uuid="MIG-1", product="NVIDIA H100 PCIe MIG 3g.40gb"),),
            ),
        ),
        "gpus_as_of": 1_700_000_000,
        "health": "suspect",
        "evidence": "NVML has not answered for 20 s",
        "checks": (CheckReport(what="RDMA ports", verdict="ok", found="8 of 8 active"),),
    }
    assert store(machine, **found, skew=-3600) is False, "placement has nothing to do with it"

    row = Machine.objects.get(id=machine.id)
    assert row.hardware["host"]["cpu_product"] == "AMD EPYC 9654"
    assert [each["product"] for each in row.hardware["split_gpus"][0]["instances"]] == [
        "NVIDIA H100 PCIe MIG 3g.40gb"
    ]
    assert row.gpus_as_of == datetime.fromtimestamp(1_700_000_000 - 3600, UTC)
    assert (row.health, row.evidence) == ("suspect", "NVML has not answered for 20 s")
    assert row.checks == [{"what": "RDMA ports", "verdict": "ok", "found": "8 of 8 active", "fix": ""}]
    assert not row.gpus.exists(), "a GPU in MIG mode is none to place on"


def test_a_clock_that_is_hours_off_is_seen_with_any_message(machine):
    observed = Observed(
        inventory=Inventory(cpu_cores=1, memory_bytes=1, health_events=(told("e1", at=time.time() + 7200),))
    )
    request = SyncRequest(
        protocol=1,
        agent_version="1",
        boot_id="b",
        instance="i",
        sequence=1,
        sent_at=time.time() + 7200,
        applied_revision=0,
        address="10.0.0.1",
        runtime="bubblewrap",
        digest="d",
        observed=observed,
    )
    sync_receive(machine.id, request)

    assert Machine.objects.get(id=machine.id).clock_skew == pytest.approx(-7200, abs=30)
    assert HealthEvent.objects.get().at.timestamp() == pytest.approx(time.time(), abs=30)


def test_details_of_gpus_and_ports(machine):
    gpu = GpuReport(
        index=0, uuid="GPU-0", product="NVIDIA H200", memory_bytes=141 << 30, pci_bus="0000:3b:00.0"
    )
    port = PortReport(
        device="mlx5_0",
        port=1,
        link_layer="Ethernet",
        state="DOWN",
        rate_gbps=200,
        physical_state="Disabled",
        guid="0xb8cef60300aa0000",
        gids=("fe80:0000:0000:0000:b8ce:f6ff:fe2a:1144 (RoCE v2)",),
        numa_node=1,
        health="faulty",
        evidence="the link has gone down",
    )
    store(machine, gpus=(gpu,), rdma_ports=(port,))

    assert machine.gpus.get().pci_bus == "0000:3b:00.0"
    row = machine.rdma_ports.get()
    assert (row.physical_state, row.guid, row.numa_node) == ("Disabled", "0xb8cef60300aa0000", 1)
    assert row.gids == ["fe80:0000:0000:0000:b8ce:f6ff:fe2a:1144 (RoCE v2)"]
    assert (row.health, row.evidence, row.fabric) == ("faulty", "the link has gone down", None)


@pytest.mark.parametrize("model", ["machine", "port", "event"])
def test_the_database_knows_no_other_health(machine, model):
    store(machine, health_events=(told("e1"),), rdma_ports=())
    rows = {
        "machine": Machine.objects.filter(id=machine.id),
        "port": machine.rdma_ports.all(),
        "event": HealthEvent.objects.all(),
    }
    if model == "port":
        machine.rdma_ports.create(
            device="mlx5_0", port=1, link_layer="InfiniBand", state="ACTIVE", rate_gbps=1
        )
    with pytest.raises(IntegrityError), transaction.atomic():
        rows[model].update(health="poorly")
