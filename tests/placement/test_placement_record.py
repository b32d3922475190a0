"""Clusters, requests and answers written as bytes and plain data, and read again."""

import json
import random
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placement import (
    GpuFacts,
    GroupRequest,
    MachineFacts,
    MachineState,
    PortFacts,
    Request,
    Selection,
    Snapshot,
    build_snapshot,
    place,
)
from placement.arrays import UNKNOWN
from placement.holdings import Hold
from placement.record import (
    VERSION,
    answer_digest,
    hold_of_data,
    ranks_data,
    request_data,
    request_of_data,
    snapshot_load,
    state_dump,
    topology_digest,
    topology_dump,
    topology_load,
)
from placement.topology import Topology
from tests.placement.asking import GIB, placed_on, plain, reference, refused_on, snapshot_of
from tests.placement.strategies import clusters, requests

PROPERTY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
STORAGE = frozenset({"store"})

TWO = """
    gpu-01  H100 ....|..?x  ib:ib-a  roce:@100x2-down  rack=r1  nvl=d1  label=zone:a  drive=data
    gpu-02  A100 ##..       ib:ib-b@200  state=ready,cordoned  cpu=12.5
"""


def again(snapshot: Snapshot) -> Snapshot:
    return snapshot_load(topology_dump(snapshot.topology), state_dump(snapshot))


def same(one: object, other: object) -> bool:
    """Equal to the last array."""
    if isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray)
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    if hasattr(one, "__dataclass_fields__"):
        told = [field.name for field in fields(one) if field.compare]  # type: ignore[arg-type]
        return all(same(getattr(one, name), getattr(other, name)) for name in told)
    return one == other


@PROPERTY
@given(clusters(), requests(), requests(groups=2))
def test_a_snapshot_read_again_is_the_same_and_gives_the_same_answers(
    facts: list[MachineFacts], request_one: Request, request_two: Request
) -> None:
    snapshot = build_snapshot(facts, storage_fabrics=STORAGE)
    read = again(snapshot)
    assert same(snapshot, read)
    for request in (request_one, request_two):
        expected, got = place(snapshot, request), place(read, request_of_data(request_data(request)))
        assert json.dumps(got.as_data()) == json.dumps(expected.as_data())
        assert answer_digest(got) == answer_digest(expected)


def test_names_of_every_kind_survive() -> None:
    facts = [
        MachineFacts(name="über-1", labels={"a/b": "ü", "c": ""}, drives=frozenset({"d 1"}), rack="r\n1"),
        MachineFacts(
            name="m2", gpus=(GpuFacts(7, id=2**60, model="H100"),), ports=(PortFacts("p:1", fabric="é"),)
        ),
    ]
    snapshot = build_snapshot(facts)
    assert same(snapshot, again(snapshot))


def test_a_cluster_without_machines() -> None:
    snapshot = build_snapshot([])
    assert same(snapshot, again(snapshot))


def test_the_same_cluster_gives_the_same_bytes() -> None:
    one, other = snapshot_of(TWO), snapshot_of(TWO)
    assert topology_dump(one.topology) == topology_dump(other.topology)
    assert state_dump(one) == state_dump(other)
    assert topology_digest(topology_dump(one.topology)) == topology_digest(topology_dump(other.topology))


def test_a_run_that_starts_changes_the_state_and_not_the_topology() -> None:
    snapshot = snapshot_of(TWO)
    after = snapshot.take(placed_on(snapshot, plain(gpus=2, machines=1)))
    assert topology_dump(after.topology) == topology_dump(snapshot.topology)
    assert state_dump(after) != state_dump(snapshot)
    assert same(after, snapshot_load(topology_load(topology_dump(snapshot.topology)), state_dump(after)))


def test_every_field_of_a_request_survives() -> None:
    group = GroupRequest(
        name="g",
        gpus=16,
        models=frozenset({"H100", "A100"}),
        healthy_only=True,
        min_memory_bytes=GIB,
        machines=2,
        min_nodes=1,
        max_nodes=3,
        min_per_machine=4,
        cpu_millicores_per_gpu=1,
        memory_bytes_per_gpu=2,
        cpu_millicores=3,
        memory_bytes=4,
        interconnect="rdma",
        min_gbps=400,
        keep_within="rack",
        spread="machine",
        selection=Selection(frozenset({"p"}), frozenset({"m"}), {"b": "1", "a": "2"}, frozenset({"x"})),
        drives=frozenset({"data"}),
    )
    request = Request(
        groups=(group, GroupRequest(selection=Selection(pools=frozenset()))),
        allowed_pools=frozenset(),
        over_cap=frozenset({"p"}),
        guaranteed_to_others=frozenset({"q"}),
        reserved=frozenset({"m9"}),
        occupied=frozenset({"m1"}),
        avoid={"m2": 0.5},
        prefer=frozenset({"m3"}),
    )
    for part in (request, group, group.selection):
        defaults = {field.name: getattr(type(part)(**_least(part)), field.name) for field in fields(part)}
        unchanged = {name for name, value in defaults.items() if getattr(part, name) == value}
        assert unchanged == set(), "this test is to set every field"
    assert request_of_data(json.loads(json.dumps(request_data(request)))) == request


def _least(part: object) -> dict[str, Any]:
    return {"groups": (GroupRequest(),)} if isinstance(part, Request) else {}


def test_a_plain_request_is_few_words() -> None:
    assert request_data(plain(gpus=8)) == {"version": VERSION, "groups": [{"gpus": 8}]}


@PROPERTY
@given(st.one_of(requests(), requests(groups=2)))
def test_any_request_survives_json(request_: Request) -> None:
    assert request_of_data(json.loads(json.dumps(request_data(request_)))) == request_


def test_what_a_placement_takes_can_be_taken_again() -> None:
    snapshot = snapshot_of("gpu-01 H100 ....\ngpu-02 H100 ..##")
    placement = placed_on(snapshot, plain(gpus=4, machines=2, cpu_millicores=1000, memory_bytes=GIB))
    data = json.loads(json.dumps(ranks_data(placement)))
    assert [hold_of_data(one) for one in data] == [
        Hold("gpu-01", (0, 1), 1000, GIB),
        Hold("gpu-02", (0, 1), 1000, GIB),
    ]
    assert same(snapshot.held(hold_of_data(one) for one in data), snapshot.take(placement))


def test_answers_that_say_the_same_have_one_digest() -> None:
    snapshot = snapshot_of(TWO)
    refusal = refused_on(snapshot, reference())
    assert answer_digest(refusal) == answer_digest(refused_on(snapshot_of(TWO), reference()))
    assert answer_digest(refusal) != answer_digest(refused_on(snapshot, reference(min_gbps=100)))
    assert len(answer_digest(refusal)) == 64


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "These bytes are no recorded state."),
        (b"\x80\x04pickle", "These bytes are no recorded state."),
        (
            b"astraeus-cluster 9 state\nx",
            "A recorded state of version 9 cannot be read; this release reads version 1.",
        ),
        (b"astraeus-cluster 1 topology\nx", "These bytes are a recorded topology, not a state."),
        (b"astraeus-cluster 1 state\nx", "A recorded state is damaged"),
    ],
)
def test_bytes_that_cannot_be_read(data: bytes, message: str) -> None:
    topology = topology_dump(snapshot_of(TWO).topology)
    with pytest.raises(ValueError, match=message):
        snapshot_load(topology, data)


def test_a_state_that_is_cut_short() -> None:
    snapshot = snapshot_of(TWO)
    with pytest.raises(ValueError, match="A recorded state is damaged"):
        snapshot_load(topology_dump(snapshot.topology), state_dump(snapshot)[:-8])


def test_a_state_of_another_cluster() -> None:
    snapshot = snapshot_of(TWO)
    with pytest.raises(ValueError, match="This state is of another cluster"):
        snapshot_load(topology_dump(build_snapshot([]).topology), state_dump(snapshot))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"groups": []}, "A recorded request of version None cannot be read"),
        ({"version": 2, "groups": []}, "this release reads version 1"),
        ({"version": 1, "groups": [{"gpus": 1, "colour": 3}]}, "A recorded request has a field 'colour'"),
        ({"version": 1}, "A request needs at least one group of workers"),
    ],
)
def test_requests_that_cannot_be_read(data: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        request_of_data(data)


def large(machines: int) -> Snapshot:
    """Nine of ten GPUs held, amounts as different runs leave them."""
    choose = random.Random(7)
    return build_snapshot(large_machine(choose, number) for number in range(machines))


def large_machine(choose: random.Random, number: int) -> MachineFacts:
    busy = choose.random() < 0.9
    gpus = tuple(
        GpuFacts(
            slot, number * 8 + slot, "H100", 80 * GIB, slot // 4, held=busy, suspect=choose.random() < 0.005
        )
        for slot in range(8)
    )
    ports = tuple(PortFacts(f"mlx5_{slot}:1", gbps=400, fabric=f"ib-{number // 512}") for slot in range(8))
    return MachineFacts(
        name=f"gpu-{number:05d}",
        id=number,
        pool="h100",
        state=MachineState.READY if choose.random() < 0.98 else MachineState.UNREACHABLE,
        cpu_millicores=128_000,
        cpu_free_millicores=1000 * choose.choice([0, 8, 16, 32]) if busy else 128_000,
        memory_bytes=2048 * GIB,
        memory_free_bytes=GIB * choose.randrange(0, 512, 16) if busy else 2048 * GIB,
        gpus=gpus,
        ports=ports,
        rack=f"r{number // 8}",
        labels={"zone": f"z{number % 3}"},
    )


def test_ten_thousand_machines_are_kept_in_little_space() -> None:
    snapshot = large(10_000)
    assert len(state_dump(snapshot)) <= 60 * 1024
    assert len(topology_dump(snapshot.topology)) <= 256 * 1024
    assert same(snapshot, again(snapshot))


def test_every_field_of_a_topology_is_written_or_worked_out() -> None:
    topology = snapshot_of(TWO).topology
    assert (topology.gpu_index == UNKNOWN).any(), "the drawing is to have a table with gaps"
    assert isinstance(topology_load(topology_dump(topology)), Topology)
    assert same(topology, topology_load(topology_dump(topology)))
