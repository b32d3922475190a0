"""What administrators say of health: it counts instead of what agents say, for a while, and everybody sees why."""

from datetime import timedelta

import pytest
from django.db import DatabaseError, IntegrityError, transaction

from common.clock import database_now
from common.errors import Invalid, NotFound
from machines import overrides
from machines.inventory import inventory_store
from machines.models import Gpu, HealthEvent, HealthOverride, Machine, RdmaPort
from machines.overrides import health_override, health_override_end, health_overrides_expire
from placement.snapshot import GPU_FAULTY, GPU_SUSPECT
from runs.scheduling.snapshot import cluster_load, cluster_snapshot
from tenancy.models import AuditEvent
from tests import factories
from wire.agent_messages import Observed
from wire.inventory import GpuReport, Inventory, PortReport

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def ana(house):
    return factories.actor_of(house.ana)


@pytest.fixture
def machine(house) -> Machine:
    return factories.machine_make(house, "gpu-01", gpus=2, rack=None)


@pytest.fixture
def say(machine, ana):
    """`say(subject, health)`: as Ana says it, for an hour."""

    def said(subject: str, health: str, *, reason: str = "it is noisy", lasts: timedelta = HOUR):
        return health_override(
            machine=machine, subject=subject, health=health, reason=reason, lasts=lasts, actor=ana
        )

    return said


def reports(machine: Machine, *, gpu: str = "healthy", port: str = "healthy", whole: str = "healthy") -> None:
    """As its agent reports its two GPUs and two ports; the first of each is in this health."""
    states = {"healthy": "", "suspect": "row remap pending", "faulty": "fell off the bus"}
    gpus = [
        GpuReport(
            index=row.index,
            uuid=row.uuid,
            product=row.product,
            memory_bytes=row.memory_bytes,
            health=gpu if row.index == 0 else "healthy",
            evidence=states[gpu] if row.index == 0 else "",
        )
        for row in machine.gpus.all()
    ]
    ports = [
        PortReport(
            device=f"mlx5_{index}",
            port=1,
            link_layer="InfiniBand",
            state="ACTIVE",
            rate_gbps=400,
            subnet_manager="0xfe800000000000c1",
            health=port if index == 0 else "healthy",
        )
        for index in range(2)
    ]
    told = Inventory(cpu_cores=24, memory_bytes=1, gpus=gpus, rdma_ports=ports, health=whole)
    inventory_store(machine=Machine.objects.get(id=machine.id), observed=Observed(inventory=told))


def gpus_of(machine: Machine) -> list[tuple[str, str]]:
    return list(Gpu.objects.filter(machine=machine).order_by("index").values_list("health", "evidence"))


def over(machine: Machine) -> None:
    """Time has passed until all that was said is over."""
    HealthOverride.objects.filter(machine=machine).update(until=database_now() - timedelta(seconds=1))
    health_overrides_expire()


NOISY = "set by ana: it is noisy"


def test_one_machines_trouble_keeps_no_other_waiting(machine, say, monkeypatch):
    say("gpu GPU-gpu-01-0", "suspect")
    say("gpu GPU-gpu-01-1", "suspect")
    tried = []

    def end(said_id: int, machine: Machine) -> None:
        tried.append(said_id)
        raise DatabaseError("deadlock detected")

    monkeypatch.setattr(overrides, "_expire", end)
    over(machine)
    assert len(tried) == 2


def test_what_is_said_counts_until_its_time_is_over_whatever_the_agent_says(machine, say):
    version = Machine.objects.get(id=machine.id).version

    said = say("gpu GPU-gpu-01-0", "suspect")

    assert gpus_of(machine) == [("suspect", NOISY), ("healthy", "")]
    assert timedelta(0) <= database_now() + HOUR - said.until < timedelta(minutes=1)
    assert Machine.objects.get(id=machine.id).version > version, "what was decided before is decided anew"
    reports(machine, gpu="faulty")
    assert gpus_of(machine) == [("suspect", NOISY), ("healthy", "")]
    health_overrides_expire()
    assert gpus_of(machine)[0] == ("suspect", NOISY), "its time is not over"
    over(machine)
    assert gpus_of(machine) == [("faulty", "fell off the bus"), ("healthy", "")]
    assert not HealthOverride.objects.exists()


def test_healthy_is_said_of_what_an_agent_is_wrong_about(machine, say):
    reports(machine, gpu="faulty")

    say("gpu GPU-gpu-01-0", "healthy", reason="tested for a day")

    assert gpus_of(machine)[0] == ("healthy", "set by ana: tested for a day")
    assert not cluster_load(machine.cluster).snapshot.gpu_state[0, 0] & (GPU_SUSPECT | GPU_FAULTY)


def test_a_port_that_is_said_to_be_faulty_is_not_used(machine, say):
    cluster_snapshot(
        machine.cluster
    )  # it is remembered: what changes must be noted by the database's triggers

    say("port mlx5_1:1", "faulty")

    assert cluster_snapshot(machine.cluster).snapshot.topology.ports.up.tolist() == [True, False]
    reports(machine, port="faulty")
    assert cluster_snapshot(machine.cluster).snapshot.topology.ports.up.tolist() == [False, False]
    over(machine)
    assert cluster_snapshot(machine.cluster).snapshot.topology.ports.up.tolist() == [False, True]
    assert list(RdmaPort.objects.values_list("health", "reported_health").order_by("device")) == [
        ("faulty", "faulty"),
        ("healthy", "healthy"),
    ]


def test_what_is_said_of_a_machine_makes_its_gpus_no_better_and_their_own_word_counts_first(machine, say):
    reports(machine, gpu="faulty")

    say("machine", "suspect")
    assert gpus_of(machine) == [("faulty", "fell off the bus"), ("suspect", NOISY)]
    assert Machine.objects.get(id=machine.id).health == "suspect"

    say("gpu GPU-gpu-01-0", "healthy")
    say("machine", "faulty")
    assert gpus_of(machine) == [("healthy", NOISY), ("faulty", NOISY)]

    say("machine", "healthy")
    assert gpus_of(machine) == [("healthy", NOISY), ("healthy", "")]
    reports(machine, whole="suspect")
    assert Machine.objects.values_list("health", "reported_health").get(id=machine.id) == (
        "healthy",
        "suspect",
    )


def test_each_change_is_in_the_history_of_its_health_and_in_the_audit_log(machine, say, ana):
    say("port mlx5_0:1", "faulty", reason="bent cable")
    say("port mlx5_0:1", "suspect", reason="new cable")
    health_override_end(machine=machine, subject="port mlx5_0:1", actor=ana)
    health_override_end(machine=machine, subject="port mlx5_0:1", actor=ana)  # nothing is said any more
    say("gpu GPU-gpu-01-1", "faulty")
    over(machine)
    health_overrides_expire()

    events = HealthEvent.objects.filter(machine=machine).order_by("id")
    assert [(each.name, each.was, each.health, each.by) for each in events] == [
        ("mlx5_0:1", "healthy", "faulty", "ana"),
        ("mlx5_0:1", "faulty", "suspect", "ana"),
        ("mlx5_0:1", "suspect", "healthy", "ana"),
        ("GPU 1", "healthy", "faulty", "ana"),
        ("GPU 1", "faulty", "healthy", "ana"),
    ]
    assert events[0].evidence.startswith("bent cable (until 20")
    assert events[4].evidence == "the time is over: what its agent says counts again"
    audit = AuditEvent.objects.filter(action="machine.health").order_by("id")
    assert [(each.actor, (each.after or {}).get("health")) for each in audit] == [
        ("ana", "faulty"),
        ("ana", "suspect"),
        ("ana", None),
        ("ana", "faulty"),
    ]
    assert audit[1].before["reason"] == "bent cable"


def test_what_has_gone_meanwhile_is_no_trouble_for_the_sweep(machine, say):
    say("port mlx5_0:1", "faulty")
    RdmaPort.objects.all().delete()

    over(machine)

    assert not HealthOverride.objects.exists()
    last = HealthEvent.objects.order_by("-id")[0]
    assert (last.name, last.health) == ("mlx5_0:1", "healthy")


@pytest.mark.parametrize(
    ("values", "path", "message"),
    [
        ({"health": "poorly"}, "health", "`poorly` is none of healthy, suspect and faulty."),
        ({"reason": "  "}, "reason", "Say why: others see it, and you may have forgotten by then."),
        ({"lasts": timedelta(0)}, "lasts", "It can count for 90 days at most, and for longer than nothing."),
        (
            {"lasts": timedelta(days=91)},
            "lasts",
            "It can count for 90 days at most, and for longer than nothing.",
        ),
    ],
)
def test_what_can_not_be_said_is_refused_and_nothing_is_changed(machine, say, values, path, message):
    with pytest.raises(Invalid) as refused:
        say("machine", **{"health": "faulty", **values})

    assert [(error.path, error.message) for error in refused.value.errors] == [(path, message)]
    assert not HealthOverride.objects.exists()
    assert not HealthEvent.objects.exists()


@pytest.mark.parametrize("subject", ["gpu GPU-of-another", "port mlx5_9:1", "port mlx5_0", "fan 3", ""])
def test_what_the_machine_has_not_is_named(machine, say, subject):
    with pytest.raises(NotFound, match=f"gpu-01 has no `{subject}`"):
        say(subject, "faulty")


def test_the_database_holds_one_word_for_each_thing_and_no_unknown_health(machine, say):
    said = say("machine", "faulty")

    with pytest.raises(IntegrityError), transaction.atomic():
        HealthOverride.objects.filter(id=said.id).update(health="poorly")
    said.id = None
    with pytest.raises(IntegrityError), transaction.atomic():
        said.save(force_insert=True)
