"""What a pass sees of the rows."""

import pytest
from django.utils import timezone

from machines.models import Gpu, Machine, RdmaPort
from machines.services import machine_label_set
from machines.states import FABRIC_LABEL, NVLINK_DOMAIN_LABEL, RACK_LABEL
from placement import MachineFacts, MachineState
from runs.models import Allocation
from runs.scheduling import snapshot
from runs.scheduling.snapshot import cluster_load
from tests import factories

pytestmark = pytest.mark.django_db
GIB = factories.GIB


@pytest.fixture
def ana(house):
    return factories.actor_of(house.ana)


def seen(house) -> dict[str, MachineFacts]:
    """The facts of each machine as `build_snapshot` gets them."""
    rows = snapshot._rows_load(house.cluster)
    machines = Machine.objects.select_related("pool")
    return {machine.name: snapshot._machine(machine, rows) for machine in machines}


def test_a_machine_as_placement_sees_it(house, machines):
    found = seen(house)["gpu-01"]

    assert (found.pool, found.state, found.rack, found.nvlink_domain) == (
        "h100",
        MachineState.READY,
        "r1",
        None,
    )
    assert (found.cpu_millicores, found.cpu_free_millicores) == (96_000, 96_000)
    assert (found.memory_bytes, found.memory_free_bytes) == (1024 * GIB, 1024 * GIB)
    assert [(gpu.index, gpu.model, gpu.held, gpu.suspect) for gpu in found.gpus] == [
        (index, "H100", False, False) for index in range(8)
    ]
    assert {(port.link, port.up, port.gbps, port.fabric) for port in found.ports} == {
        ("infiniband", True, 400, "ib-a")
    }
    assert [port.name for port in found.ports][:2] == ["mlx5_0:1", "mlx5_1:1"]


def test_what_a_person_set_wins_over_what_was_found(house, machines, ana):
    machine_label_set(machine=machines[0], key=RACK_LABEL, value="r9", actor=ana)
    machine_label_set(machine=machines[0], key=FABRIC_LABEL, value="blue", actor=ana)
    machine_label_set(machine=machines[0], key=NVLINK_DOMAIN_LABEL, value="nv-1", actor=ana)
    found = seen(house)

    assert (found["gpu-01"].rack, found["gpu-02"].rack) == ("r9", "r1")
    assert {port.fabric for port in found["gpu-01"].ports} == {"blue"}
    assert {port.fabric for port in found["gpu-02"].ports} == {"ib-a"}
    assert found["gpu-01"].nvlink_domain == "nv-1"


def test_the_fabric_label_names_infiniband_ports_only(house, machines, ana):
    RdmaPort.objects.filter(machine=machines[0], device="mlx5_7").update(link_layer="Ethernet", fabric=None)
    machine_label_set(machine=machines[0], key=FABRIC_LABEL, value="blue", actor=ana)
    ports = {port.name: port for port in seen(house)["gpu-01"].ports}

    assert (ports["mlx5_7:1"].link, ports["mlx5_7:1"].fabric) == ("ethernet", None)
    assert ports["mlx5_0:1"].fabric == "blue"


def test_held_suspect_faulty_and_absent_gpus(house, machines, gang):
    gpu = Gpu.objects.get(machine=machines[0], index=0)
    Allocation.objects.filter(gpu=gpu).update(released_at=timezone.now())
    Gpu.objects.filter(machine=machines[0], index=1).update(health="suspect")
    Gpu.objects.filter(machine=machines[0], index=2).update(health="faulty")
    Gpu.objects.filter(machine=machines[0], index=3).update(present=False)
    found = {each.index: each for each in seen(house)["gpu-01"].gpus}

    assert [found[0].held, found[1].held] == [False, True]
    assert (found[1].suspect, found[2].faulty) == (True, True)
    assert 3 not in found
    assert seen(house)["gpu-01"].cpu_free_millicores == 0
    assert seen(house)["gpu-01"].memory_free_bytes == 224 * GIB


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("cordoned_at", MachineState.READY | MachineState.CORDONED),
        ("draining_at", MachineState.READY | MachineState.DRAINING),
        ("unreachable_at", MachineState.UNREACHABLE),
        ("quarantined_at", MachineState.QUARANTINED),
    ],
)
def test_the_state_of_a_machine(house, machines, field, expected):
    Machine.objects.filter(id=machines[0].id).update(**{field: timezone.now()})

    assert seen(house)["gpu-01"].state == expected


def test_nvlink_domains_are_found_by_the_gpus(house, machines):
    Gpu.objects.filter(machine=machines[0]).update(nvlink_domain="uuid/1")
    Gpu.objects.filter(machine=machines[1], index=0).update(nvlink_domain="uuid/1")
    Gpu.objects.filter(machine=machines[1], index=1).update(nvlink_domain="uuid/2")

    assert seen(house)["gpu-01"].nvlink_domain == "uuid/1"
    assert seen(house)["gpu-02"].nvlink_domain is None, "two domains on one machine are none"


def test_loading_takes_the_same_queries_whatever_the_size(house, machines, django_assert_num_queries):
    with django_assert_num_queries(7):
        cluster_load(house.cluster)
    factories.machine_make(house, "gpu-03")
    with django_assert_num_queries(7):
        cluster_load(house.cluster)
