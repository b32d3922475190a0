"""A snapshot that is patched is the snapshot that would be built anew."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from placement import (
    GpuFacts,
    GroupRequest,
    MachineFacts,
    MachineState,
    PortFacts,
    Request,
    Snapshot,
    build_snapshot,
    place,
)
from placement.build import tables_of_facts
from placement.patch import patched
from placement.record import answer_digest
from placement.whatif.machines import PortLift
from placement.whatif.terrain import with_rack
from tests.placement.drawing import machines
from tests.placement.same import assert_same
from tests.placement.strategies import STORAGE, clusters, machine, requests

CLUSTER = """
gpu-01  H100 ....|....  ib:ib-ax8    rack=r1  label=zone:a
gpu-02  H100 ..##|....  ib:ib-ax8    rack=r1  label=zone:a
gpu-03  A100 ....|....  ib:ib-bx8    rack=r2  label=zone:b
gpu-04  A100 ....|....  ib:ib-bx8    rack=r2  label=zone:b
"""
FACTS = {each.name: each for each in machines(CLUSTER)}


def after(
    *changed: MachineFacts, gone: tuple[str, ...] = (), storage: frozenset[str] = frozenset()
) -> Snapshot:
    """The patched snapshot of CLUSTER, which is the one built anew."""
    base = build_snapshot(FACTS.values())
    result = patched(base, tables_of_facts(changed), gone=gone, storage_fabrics=storage)
    now = {name: facts for name, facts in FACTS.items() if name not in gone} | {m.name: m for m in changed}
    assert_same(result, build_snapshot(now.values(), storage_fabrics=storage))
    assert_same(base, build_snapshot(FACTS.values()))
    return result


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[MachineFacts], list[MachineFacts], set[str]]:
    """A cluster, machines as they are afterwards (some of them new), and the names of those that have gone."""
    before = draw(clusters())
    numbers = draw(st.sets(st.integers(0, len(before) + 1), max_size=4))
    changed = [draw(machine(number)) for number in sorted(numbers)]
    kept = [each for each in before if each.name not in {one.name for one in changed}]
    flapping = [
        replace(each, ports=tuple(replace(port, up=not port.up) for port in each.ports))
        for each in kept
        if draw(st.booleans())
    ]
    gone = draw(st.sets(st.sampled_from([each.name for each in before]), max_size=2)) if before else set()
    stay = [each for each in [*changed, *flapping] if each.name not in gone or draw(st.booleans())]
    return before, stay, gone


@settings(deadline=None)
@given(changes(), st.sampled_from([STORAGE, frozenset(), frozenset({"ib-a"})]))
@example(([], [], set()), frozenset())
def test_patching_is_building_anew(change, storage):
    before, changed, gone = change
    base = build_snapshot(before, storage_fabrics=STORAGE)
    now = {each.name: each for each in before if each.name not in gone} | {
        each.name: each for each in changed
    }

    result = patched(base, tables_of_facts(changed), gone=gone, storage_fabrics=storage)

    assert_same(result, build_snapshot(now.values(), storage_fabrics=storage))
    assert_same(base, build_snapshot(before, storage_fabrics=STORAGE))


def said(snapshot: Snapshot, request: Request) -> tuple[str, str]:
    """What the engine answers on the cluster, and on it without runs and repaired."""
    empty = snapshot.emptied(repaired=True)
    return answer_digest(place(snapshot, request)), answer_digest(place(empty, request))


@settings(deadline=None)
@given(changes(), requests())
def test_what_is_remembered_of_a_cluster_is_not_said_of_the_changed_one(change, request):
    before, changed, gone = change
    base = build_snapshot(before, storage_fabrics=STORAGE)
    first = said(base, request)
    now = {each.name: each for each in before if each.name not in gone} | {
        each.name: each for each in changed
    }

    result = patched(base, tables_of_facts(changed), gone=gone, storage_fabrics=STORAGE)

    assert said(result, request) == said(build_snapshot(now.values(), storage_fabrics=STORAGE), request)
    assert said(base, request) == first


def test_what_is_remembered_of_a_cluster_is_not_said_once_its_ports_are_up_or_its_machine_labelled():
    ports = FACTS["gpu-01"].ports
    broken = replace(FACTS["gpu-01"], ports=(replace(ports[0], up=False), *ports[1:]), rack=None)
    base = build_snapshot([broken, FACTS["gpu-02"]])
    group = GroupRequest(gpus=8, machines=1, interconnect="infiniband")
    assert len(place(base, Request((group,))).ranks[0].ports) == 7
    assert base.emptied(repaired=True).topology.rack.tolist() == [-1, 0]

    mended = PortLift().everywhere(base, np.arange(2))
    labelled = replace(base, topology=with_rack(base.topology, np.array([0]), np.array([0])))

    assert len(place(mended, Request((group,))).ranks[0].ports) == 8
    assert labelled.emptied(repaired=True).topology.rack.tolist() == [0, 0]


def test_what_runs_take_and_leave_keeps_the_topology_with_all_it_remembers():
    base = build_snapshot(FACTS.values())
    gpus = tuple(replace(gpu, held=True) for gpu in FACTS["gpu-01"].gpus)
    taken = replace(FACTS["gpu-01"], gpus=gpus, cpu_free_millicores=32_000)

    result = patched(base, tables_of_facts([taken]))

    assert result.topology is base.topology
    assert result.free_healthy.tolist() == [0, 6, 8, 8]
    assert result.cpu_free.tolist() == [32_000, 128_000, 128_000, 128_000]
    assert result.state is base.state, "what did not change is shared"


def test_machines_that_are_as_they_were_change_nothing():
    base = build_snapshot(FACTS.values())

    assert patched(base, tables_of_facts([FACTS["gpu-02"], FACTS["gpu-04"]])) is base
    assert patched(base, tables_of_facts([])) is base


@pytest.mark.parametrize(
    "changed",
    [
        replace(FACTS["gpu-01"], rack="r2"),
        replace(FACTS["gpu-01"], labels={"zone": "b"}),
        replace(FACTS["gpu-01"], state=MachineState.READY | MachineState.CORDONED),
        replace(FACTS["gpu-01"], ports=tuple(replace(port, up=False) for port in FACTS["gpu-01"].ports)),
        replace(FACTS["gpu-01"], ports=tuple(replace(port, gbps=200) for port in FACTS["gpu-01"].ports)),
        replace(FACTS["gpu-01"], ports=FACTS["gpu-03"].ports),
        replace(FACTS["gpu-01"], gpus=FACTS["gpu-03"].gpus),
        replace(FACTS["gpu-01"], gpus=FACTS["gpu-01"].gpus[:5]),
        replace(FACTS["gpu-01"], id=99),
    ],
)
def test_only_rows_are_written_where_all_names_are_known(changed):
    base = build_snapshot(FACTS.values())
    result = after(changed)

    assert result.topology.names is base.topology.names or result.names == base.names
    others = [row for row, name in enumerate(base.names) if name != changed.name]
    np.testing.assert_array_equal(result.gpu_state[others], base.gpu_state[others])


def test_an_array_that_is_patched_is_not_the_old_one():
    base = build_snapshot(FACTS.values())
    down = tuple(replace(port, up=False) for port in FACTS["gpu-01"].ports)

    result = patched(base, tables_of_facts([replace(FACTS["gpu-01"], ports=down)]))

    assert result.topology.ports.up.tolist() == [False] * 8 + [True] * 24
    assert base.topology.ports.up.tolist() == [True] * 32
    assert result.topology.members.gbps.tolist() == [-1, 400, 400, 400]


@pytest.mark.parametrize(
    "changed",
    [
        replace(FACTS["gpu-03"], name="gpu-00", id=7),
        replace(FACTS["gpu-01"], rack="r0"),
        replace(FACTS["gpu-01"], pool="a100"),
        replace(FACTS["gpu-01"], labels={"zone": "a", "disk": "fast"}),
        replace(FACTS["gpu-01"], gpus=(*FACTS["gpu-01"].gpus, GpuFacts(8, id=108, model="B200"))),
        replace(FACTS["gpu-01"], ports=FACTS["gpu-01"].ports[:4]),
        replace(FACTS["gpu-01"], ports=(PortFacts("mlx5_0:1", "ethernet", gbps=400),)),
    ],
)
def test_new_names_and_other_sizes_renumber(changed):
    after(changed)


def test_names_that_nothing_uses_any_more_leave_the_tables():
    result = after(
        replace(FACTS["gpu-03"], rack="r1", labels={"zone": "a"}, ports=FACTS["gpu-01"].ports),
        gone=("gpu-04",),
    )

    assert result.topology.racks == ("r1",)
    assert result.topology.label_pairs == (("zone", "a"),)
    assert result.topology.fabrics.names == ("ib-a",)


def test_the_last_of_a_rack_that_moves_takes_its_name_along():
    after(gone=("gpu-04",))
    base = build_snapshot([FACTS["gpu-01"], FACTS["gpu-03"]])
    moved = replace(FACTS["gpu-03"], rack="r1")

    result = patched(base, tables_of_facts([moved]))

    assert result.topology.racks == ("r1",)
    assert_same(result, build_snapshot([FACTS["gpu-01"], moved]))


def test_two_machines_that_swap_their_names():
    one, other = FACTS["gpu-01"], FACTS["gpu-03"]

    after(replace(one, name="gpu-03"), replace(other, name="gpu-01"), gone=("gpu-01", "gpu-03"))


def test_a_fabric_that_becomes_storage_leaves_the_ports_of_all_machines():
    result = after(storage=frozenset({"ib-a"}))

    assert result.topology.port_sums.usable[0].tolist() == [0, 0, 8, 8]
    assert sorted(set(result.topology.members.machine.tolist())) == [2, 3]


def test_all_machines_may_go():
    after(gone=tuple(FACTS))


def test_topologies_that_say_the_same_are_told_from_ones_that_do_not():
    drawing = "gpu-01  H100 ....  ib:ib-a  rack=r1"
    one = build_snapshot(machines(drawing)).topology
    assert one.same_as(build_snapshot(machines(drawing.replace("....", "..##"))).topology), (
        "a GPU is held now"
    )
    assert not one.same_as(build_snapshot(machines(drawing.replace("r1", "r2"))).topology)
    assert not one.same_as(build_snapshot(machines(drawing.replace("ib:ib-a", "ib:ib-a-down"))).topology)
