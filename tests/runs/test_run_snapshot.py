"""What a pass sees of the rows."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from django.utils import timezone

from machines.models import Cluster, Gpu, Machine, RdmaPort
from machines.services import machine_label_set
from machines.states import FABRIC_LABEL, NVLINK_DOMAIN_LABEL, RACK_LABEL
from placement import MachineState
from placement.arrays import UNKNOWN
from placement.snapshot import GPU_FAULTY, GPU_HELD, GPU_PRESENT, GPU_SUSPECT
from placement.tables import Coded, Tables
from placement.topology import INFINIBAND, ROCE
from placement.untable import tables_of
from runs.models import Allocation, Claim
from runs.scheduling.rows import BITS
from runs.scheduling.snapshot import cluster_load
from tests import factories

pytestmark = pytest.mark.django_db
GIB = factories.GIB


@pytest.fixture
def ana(house):
    return factories.actor_of(house.ana)


def value(column: Coded[Any], row: int = 0) -> Any:
    """An entry of a column with a table of values."""
    code = int(column.code[row])
    return None if code == UNKNOWN else column.table[code]


def seen(house, name: str) -> Tables:
    """One machine as the snapshot has it."""
    snapshot = cluster_load(house.cluster).snapshot
    return tables_of(snapshot, np.array([snapshot.topology.row_of[name]]))


def fabrics(machine: Tables) -> list[str | None]:
    """Of each port in order."""
    return [value(machine.ports.fabric, row) for row in range(machine.ports.owner.size)]


def test_a_machine_as_placement_sees_it(house, machines):
    found = seen(house, "gpu-01")

    assert found.ids.tolist() == [machines[0].id]
    assert (value(found.pool), value(found.rack), value(found.nvlink_domain)) == ("h100", "r1", None)
    assert found.state.tolist() == [MachineState.READY]
    assert (found.cpu_total.tolist(), found.cpu_free.tolist()) == ([96_000], [96_000])
    assert (found.memory_total.tolist(), found.memory_free.tolist()) == ([1024 * GIB], [1024 * GIB])
    assert found.gpus.index.tolist() == list(range(8))
    assert found.gpus.id.tolist() == list(machines[0].gpus.order_by("index").values_list("id", flat=True))
    assert found.gpus.model.table == ("H100",)
    assert found.gpus.memory.tolist() == [80 * GIB] * 8
    assert found.gpus.state.tolist() == [GPU_PRESENT] * 8
    assert [value(found.ports.name, row) for row in range(8)] == [f"mlx5_{number}:1" for number in range(8)]
    assert (set(found.ports.link.tolist()), set(found.ports.up.tolist())) == ({INFINIBAND}, {True})
    assert (set(found.ports.gbps.tolist()), set(fabrics(found))) == ({400}, {"ib-a"})
    assert [value(found.labels.item)] == [(RACK_LABEL, "r1")]


def test_versions_and_names_come_by_machine(house, machines):
    Machine.objects.filter(id=machines[1].id).update(version=7)
    loaded = cluster_load(house.cluster)

    assert loaded.versions == {machines[0].id: 0, machines[1].id: 7}
    assert loaded.names == {machines[0].id: "gpu-01", machines[1].id: "gpu-02"}


def test_a_machine_that_was_removed_and_those_of_other_clusters_are_not_there(house, machines):
    other = Cluster.objects.create(organization=house.organization, slug="other", name="Other")
    Machine.objects.filter(id=machines[0].id).update(removed_at=timezone.now())

    assert cluster_load(house.cluster).snapshot.names == ("gpu-02",)
    assert cluster_load(other).snapshot.names == ()


def test_what_a_person_set_wins_over_what_was_found(house, machines, ana):
    machine_label_set(machine=machines[0], key=RACK_LABEL, value="r9", actor=ana)
    machine_label_set(machine=machines[0], key=FABRIC_LABEL, value="blue", actor=ana)
    machine_label_set(machine=machines[0], key=NVLINK_DOMAIN_LABEL, value="nv-1", actor=ana)
    one, other = seen(house, "gpu-01"), seen(house, "gpu-02")

    assert (value(one.rack), value(other.rack)) == ("r9", "r1")
    assert (set(fabrics(one)), set(fabrics(other))) == ({"blue"}, {"ib-a"})
    assert (value(one.nvlink_domain), value(other.nvlink_domain)) == ("nv-1", None)


def test_the_fabric_label_names_infiniband_ports_only(house, machines, ana):
    RdmaPort.objects.filter(machine=machines[0], device="mlx5_7").update(link_layer="Ethernet", fabric=None)
    machine_label_set(machine=machines[0], key=FABRIC_LABEL, value="blue", actor=ana)
    ports = seen(house, "gpu-01").ports

    assert ports.link.tolist() == [INFINIBAND] * 7 + [ROCE]
    assert fabrics(seen(house, "gpu-01")) == ["blue"] * 7 + [""], (
        "RoCE ports without a fabric are one network"
    )


def test_ports_that_are_half_known(house, machines):
    ports = RdmaPort.objects.filter(machine=machines[0])
    ports.filter(device="mlx5_0").update(state="DOWN")
    ports.filter(device="mlx5_1").update(fabric=None)
    ports.filter(device="mlx5_2").update(rate_gbps=-1)
    ports.filter(device="mlx5_3").update(rate_gbps=math.nan)
    found = seen(house, "gpu-01")

    assert found.ports.up.tolist() == [False] + [True] * 7
    assert fabrics(found)[:3] == ["ib-a", None, "ib-a"]
    assert found.ports.gbps.tolist() == [400, 400, 0, 1_000_000, 400, 400, 400, 400]


def test_held_suspect_faulty_and_absent_gpus(house, machines, gang):
    gpu = Gpu.objects.get(machine=machines[0], index=0)
    Allocation.objects.filter(gpu=gpu).update(released_at=timezone.now())
    Gpu.objects.filter(machine=machines[0], index=1).update(health="suspect")
    Gpu.objects.filter(machine=machines[0], index=2).update(health="faulty")
    Gpu.objects.filter(machine=machines[0], index=3).update(present=False)
    found = seen(house, "gpu-01")

    assert found.gpus.index.tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert found.gpus.state.tolist() == [
        GPU_PRESENT,
        GPU_PRESENT | GPU_HELD | GPU_SUSPECT,
        GPU_PRESENT | GPU_HELD | GPU_FAULTY,
        *[GPU_PRESENT | GPU_HELD] * 4,
    ]
    assert (found.cpu_free.tolist(), found.memory_free.tolist()) == ([0], [224 * GIB])


def test_claims_are_no_part_of_it(house, machines):
    run = factories.run_pending(house)
    for gpu in machines[0].gpus.all():
        Claim.objects.create(run=run, machine=machines[0], gpu=gpu)

    assert seen(house, "gpu-01").gpus.state.tolist() == [GPU_PRESENT] * 8


MOMENTS = ("quarantined_at", "unreachable_at", "two_agents_at", "draining_at", "cordoned_at")


@pytest.mark.parametrize("count", range(len(MOMENTS) + 1))
def test_the_state_is_the_one_that_people_are_shown(house, count):
    """Of all combinations of what people and sweeps said."""
    for fields in itertools.combinations(MOMENTS, count):
        for seen_at in (timezone.now(), None):
            machine = factories.machine_make(house, "gpu-01")
            Machine.objects.update(last_seen_at=seen_at, **dict.fromkeys(fields, timezone.now()))
            machine.refresh_from_db()

            assert seen(house, "gpu-01").state.tolist() == [BITS[machine.state]], (fields, seen_at)
            machine.delete()


def test_the_bits_of_states():
    assert BITS == {
        "ready": MachineState.READY,
        "cordoned": MachineState.READY | MachineState.CORDONED,
        "draining": MachineState.READY | MachineState.DRAINING,
        "unreachable": MachineState.UNREACHABLE,
        "quarantined": MachineState.QUARANTINED,
        "contested": MachineState.READY | MachineState.CONTESTED,
    }


def test_nvlink_domains_are_found_by_the_gpus(house, machines):
    Gpu.objects.filter(machine=machines[0]).update(nvlink_domain="uuid/1")
    Gpu.objects.filter(machine=machines[1], index=0).update(nvlink_domain="uuid/1")
    Gpu.objects.filter(machine=machines[1], index=1).update(nvlink_domain="uuid/2")

    assert value(seen(house, "gpu-01").nvlink_domain) == "uuid/1"
    assert value(seen(house, "gpu-02").nvlink_domain) is None, "two domains on one machine are none"


def test_gpus_of_one_numa_node_are_one_island(house, machines):
    Gpu.objects.filter(machine=machines[0], index__lt=4).update(numa_node=0)
    Gpu.objects.filter(machine=machines[0], index__gte=4).update(numa_node=1)

    assert seen(house, "gpu-01").gpus.island.tolist() == [0] * 4 + [1] * 4


def test_an_empty_cluster(house):
    loaded = cluster_load(house.cluster)

    assert (loaded.snapshot.names, loaded.versions, loaded.names) == ((), {}, {})


def test_loading_takes_one_round_trip_whatever_the_size(house, machines, django_assert_num_queries):
    with django_assert_num_queries(1):
        cluster_load(house.cluster)
    factories.machine_make(house, "gpu-03")
    with django_assert_num_queries(1):
        cluster_load(house.cluster)
