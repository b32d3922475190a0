"""Fabrics over time: hand-overs of subnet managers, ports that move, guesses."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import F

from machines.fabrics import Says, fabrics_settle, fabrics_sweep, settled
from machines.inventory import inventory_store
from machines.models import Fabric, Machine, RdmaPort
from machines.services import machines_seen
from machines.tasks import fabrics_sweep as fabrics_sweep_task
from tests import factories
from wire.agent_messages import Observed
from wire.inventory import Inventory, PortReport

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
PREFIX = "fe80:0000:0000:0000"
ALL_AGREE = 3
"""Queries: savepoint, question, release."""


@pytest.fixture
def machines(house) -> list[Machine]:
    return [factories.machine_make(house, f"gpu-{n:02}", gpus=0, fabric=None, rack=None) for n in range(3)]


def reports(key: str | None, *, ports: int = 4, first: int = 0, **values) -> tuple[PortReport, ...]:
    made = {
        "port": 1,
        "link_layer": "InfiniBand",
        "state": "ACTIVE",
        "rate_gbps": 400,
        "subnet_prefix": PREFIX,
    }
    return tuple(
        PortReport.model_validate({**made, "device": f"mlx5_{n}", "subnet_manager": key, **values})
        for n in range(first, first + ports)
    )


@pytest.fixture
def store(django_capture_on_commit_callbacks):
    """Stores as the channel does: what is done after the commit is done."""

    def store(machine: Machine, *found: PortReport) -> None:
        inventory = Inventory(cpu_cores=96, memory_bytes=1 << 40, rdma_ports=found)
        with django_capture_on_commit_callbacks(execute=True):
            inventory_store(
                machine=Machine.objects.get(id=machine.id), observed=Observed(inventory=inventory)
            )

    return store


def fabrics() -> list[tuple[str, str, bool]]:
    return list(Fabric.objects.order_by("name").values_list("name", "key", "guessed"))


def where(machine: Machine) -> list[str | None]:
    return list(machine.rdma_ports.order_by("device").values_list("fabric__name", flat=True))


def wait(seconds: float) -> None:
    """As if everything had been said so long ago."""
    RdmaPort.objects.update(reported_at=F("reported_at") - timedelta(seconds=seconds))


# --- Hand-overs


def test_a_hand_over_renames_the_fabrics_key_and_tears_nothing_apart(machines, store):
    for machine in machines:
        store(machine, *reports("0xa"))
    Fabric.objects.update(name="compute")

    store(machines[0], *reports("0xb"))
    assert (fabrics(), where(machines[0])) == ([("compute", "0xa", False)], ["compute"] * 4)
    store(machines[1], *reports("0xb"))
    assert fabrics() == [("compute", "0xb", False)], "most of its ports say so"
    store(machines[2], *reports("0xa", state="ACTIVE", lid=7))
    assert where(machines[2]) == ["compute"] * 4, "its former key still means it"
    store(machines[2], *reports("0xb"))

    assert fabrics() == [("compute", "0xb", False)]
    assert {name for machine in machines for name in where(machine)} == {"compute"}


def test_a_hand_over_and_back(machines, store):
    for key in ("0xa", "0xb", "0xa", "0xb"):
        for machine in machines:
            store(machine, *reports(key))
        assert fabrics() == [("ib-a", key, False)]


def test_a_hand_over_on_one_machine_with_two_fabrics(machines, store):
    store(machines[0], *reports("0xa"), *reports("0xc", ports=2, first=4))
    store(machines[0], *reports("0xb"), *reports("0xc", ports=2, first=4))

    assert fabrics() == [("ib-a", "0xb", False), ("ib-b", "0xc", False)]
    assert where(machines[0]) == ["ib-a"] * 4 + ["ib-b"] * 2


def test_machines_that_are_not_heard_have_no_say(machines, store):
    for machine in machines:
        store(machine, *reports("0xa"))
    Machine.objects.filter(id__in=[machines[1].id, machines[2].id]).update(unreachable_at=NOW)
    store(machines[0], *reports("0xb"))

    assert fabrics() == [("ib-a", "0xb", False)]


def test_nor_do_ports_that_are_down(machines, store):
    store(machines[0], *reports("0xa"))
    store(machines[0], *reports("0xb", ports=1), *reports(None, ports=3, first=1, state="DOWN"))

    assert fabrics() == [("ib-a", "0xb", False)]
    assert where(machines[0]) == ["ib-a"] * 4, "a port that is down has not been moved"


# --- Ports that move


def test_a_machine_that_was_plugged_into_a_new_fabric_gets_one_of_its_own_after_a_while(machines, store):
    for machine in machines:
        store(machine, *reports("0xa"))
    store(machines[0], *reports("0xb"))
    wait(119)
    fabrics_sweep()
    assert where(machines[0]) == ["ib-a"] * 4

    before = Machine.objects.get(id=machines[0].id).version
    wait(1)
    fabrics_sweep_task()
    assert fabrics() == [("ib-a", "0xa", False), ("ib-b", "0xb", False)]
    assert where(machines[0]) == ["ib-b"] * 4
    assert where(machines[1]) == ["ib-a"] * 4
    assert Machine.objects.get(id=machines[0].id).version == before + 1, "placement sees it"


def test_a_port_that_was_plugged_into_a_known_fabric_is_there_at_once(machines, store):
    store(machines[0], *reports("0xa"))
    store(machines[1], *reports("0xb"))
    store(machines[0], *reports("0xa", ports=3), *reports("0xb", ports=1, first=3))

    assert where(machines[0]) == ["ib-a", "ib-a", "ib-a", "ib-b"]
    assert fabrics() == [("ib-a", "0xa", False), ("ib-b", "0xb", False)]


def test_a_key_that_another_fabric_takes_over_at_the_same_moment_is_no_new_fabric(machines, store):
    """Some ports of ib-a have said it for long; all of ib-b say it now."""
    store(machines[0], *reports("0xa"))
    store(machines[1], *reports("0xb"))
    RdmaPort.objects.filter(machine=machines[0], device="mlx5_3").update(reported_key="0xc")
    machines[1].rdma_ports.update(reported_key="0xc")
    wait(120)
    fabrics_sweep()

    assert fabrics() == [("ib-a", "0xa", False), ("ib-b", "0xc", False)]
    assert (where(machines[0]), where(machines[1])) == (["ib-a"] * 3 + ["ib-b"], ["ib-b"] * 4)


def test_another_subnet_prefix_is_another_fabric_at_once(machines, store):
    store(machines[0], *reports("0xa"))
    store(machines[0], *reports("0xb", subnet_prefix="fec0:0000:0000:0001"))

    assert fabrics() == [("ib-a", "0xa", False), ("ib-b", "0xb", False)]
    assert where(machines[0]) == ["ib-b"] * 4


def test_two_fabrics_that_both_use_lid_1_stay_two(machines, store):
    store(machines[0], *reports("0xa", ports=1, sm_lid=1), *reports("0xb", ports=1, first=1, sm_lid=1))
    store(machines[1], *reports("0xb", ports=1, sm_lid=1))

    assert (where(machines[0]), where(machines[1])) == (["ib-a", "ib-b"], ["ib-b"])


# --- Guesses


GUESS = f"{PREFIX}/lid 1"


def test_what_was_guessed_is_found_out(machines, store):
    store(machines[0], *reports(GUESS, guessed=True))
    assert fabrics() == [("ib-a", GUESS, True)]
    store(machines[0], *reports("0xa"))
    assert fabrics() == [("ib-a", "0xa", False)]


def test_a_guess_moves_nothing_that_was_found_out(machines, store, django_assert_num_queries):
    store(machines[0], *reports("0xa"))
    store(machines[0], *reports(GUESS, guessed=True))
    wait(3600)
    with django_assert_num_queries(ALL_AGREE):
        fabrics_settle(machines[0].cluster_id)

    assert (fabrics(), where(machines[0])) == ([("ib-a", "0xa", False)], ["ib-a"] * 4)


def test_a_guess_on_a_machine_of_its_own_is_shown_as_one(machines, store):
    store(machines[0], *reports("0xa"))
    store(machines[1], *reports(GUESS, guessed=True))

    assert fabrics() == [("ib-a", "0xa", False), ("ib-b", GUESS, True)]


def test_one_guess_that_was_two_fabrics_keeps_its_name_for_one_of_them(machines, store):
    store(machines[0], *reports(GUESS, ports=3, guessed=True))
    Fabric.objects.update(name="compute")
    store(
        machines[0],
        *reports("0xa", ports=1),
        *reports("0xb", ports=1, first=1),
        *reports("0xb", ports=1, first=2),
    )
    assert fabrics() == [("compute", "0xb", False)]
    wait(120)
    fabrics_sweep()

    assert fabrics() == [("compute", "0xb", False), ("ib-a", "0xa", False)]
    assert where(machines[0]) == ["ib-a", "compute", "compute"]


# --- Names


def test_a_new_fabric_takes_no_name_that_people_gave(machines, store):
    store(machines[0], *reports("0xa"))
    Fabric.objects.update(name="ib-b")
    store(machines[1], *reports("0xb"))
    store(machines[2], *reports("0xc"))

    assert [name for name, *_ in fabrics()] == ["ib-a", "ib-b", "ib-c"]


# --- The decision


def says(port: int, key: str, *, guessed: bool = False, ago: float = 0) -> Says:
    return Says(port, 1, key, guessed, NOW - timedelta(seconds=ago))


def test_half_of_the_ports_are_not_most():
    fabric = Fabric(key="0xa")
    found = settled(fabric, [says(1, "0xa"), says(2, "0xb")], (), NOW)
    assert (found.key, found.leaving) == (None, ())
    found = settled(fabric, [says(1, "0xa"), says(2, "0xb"), says(3, "0xb")], (), NOW)
    assert (found.key, found.leaving) == (("0xb", False), ())


def test_when_nobody_says_what_it_was_known_by_the_greatest_part_takes_it_over():
    ports = [says(1, "0xb"), says(2, "0xc"), says(3, "0xc"), says(4, "0xd")]
    assert settled(Fabric(key="0xa"), ports, (), NOW).key == ("0xc", False)
    assert settled(Fabric(key="0xa"), [*ports, says(5, "0xa")], (), NOW).key is None


def test_most_ports_in_another_known_fabric_have_moved_there_instead():
    ports = [says(1, "0xb"), says(2, "0xb"), says(3, "0xa")]
    found = settled(Fabric(key="0xa"), ports, ["0xb"], NOW)
    assert (found.key, [port.port_id for port in found.leaving]) == (None, [1, 2])


def test_a_former_key_counts_for_an_hour():
    until = NOW.timestamp() + 1
    fabric = Fabric(key="0xb", former_keys={"0xa": until})
    ports = [says(1, "0xa", ago=9000), says(2, "0xb"), says(3, "0xb")]
    assert settled(fabric, ports, (), NOW).leaving == ()
    later = settled(fabric, ports, (), NOW + timedelta(seconds=1))
    assert [port.port_id for port in later.leaving] == [1]


def test_settling_a_cluster_in_which_all_agree_writes_nothing(machines, store, django_assert_num_queries):
    for machine in machines:
        store(machine, *reports("0xa"))
    machines_seen((machine.id for machine in machines), 0)
    with django_assert_num_queries(ALL_AGREE):
        fabrics_settle(machines[0].cluster_id)
