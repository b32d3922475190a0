"""Small random clusters and requests, drawn so that about half of the gangs find room and most rules matter often."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from placement import GpuFacts, GroupRequest, MachineFacts, MachineState, PortFacts, Request, Selection

GIB = 1 << 30
READY = MachineState.READY

STORAGE = frozenset({"store"})
"""Fabrics that an administrator has marked as storage, in every random cluster."""


def mostly(common: Any, *rare: Any, often: int = 8) -> st.SearchStrategy[Any]:
    """The common value `often` times out of `often` + the number of rare ones."""
    return st.sampled_from([common] * often + list(rare))


# Machines.

STATES = mostly(
    READY, *(READY | other for other in MachineState if other is not READY), MachineState(0), often=40
)

HELD, SUSPECT, BOTH, FAULTY = (
    (True, False, False),
    (False, True, False),
    (True, True, False),
    (False, False, True),
)
FLAGS = mostly((False, False, False), HELD, HELD, SUSPECT, BOTH, FAULTY, (True, False, True), often=13)


@st.composite
def gpus(draw: st.DrawFn, index: int) -> GpuFacts:
    held, suspect, faulty = draw(FLAGS)
    return GpuFacts(
        index=index,
        id=100 + index,
        model=draw(mostly("H100", "A100", "", often=14)),
        memory_bytes=draw(mostly(80, 40)) * GIB,
        numa=index // 2,
        island=draw(st.sampled_from([-1, -1, 0, 1])),
        held=held,
        suspect=suspect,
        faulty=faulty,
    )


@st.composite
def ports(draw: st.DrawFn, number: int) -> PortFacts:
    """Half-known ones among them: no fabric, no speed, a link layer that its fabric's name does not fit."""
    return PortFacts(
        name=f"mlx5_{number}:1",
        link=draw(mostly("infiniband", "ethernet", often=2)),
        up=draw(mostly(True, False, often=5)),
        gbps=draw(mostly(400, 200, 0, often=4)),
        fabric=draw(st.sampled_from(["ib-a", "ib-a", "ib-a", "ib-b", "store", "", None])),
    )


def two_ports(first: PortFacts, second: PortFacts) -> tuple[PortFacts, PortFacts]:
    return replace(first, name="mlx5_0:1"), replace(second, name="mlx5_1:1")


IB_A, IB_B = (PortFacts("", gbps=400, fabric=fabric) for fabric in ("ib-a", "ib-b"))
ROUTED = PortFacts("", "ethernet", gbps=400)

TWO_PORTS = (
    two_ports(IB_A, IB_A),
    two_ports(IB_B, IB_B),
    two_ports(ROUTED, ROUTED),
    two_ports(IB_A, replace(IB_A, up=False)),
    two_ports(replace(IB_A, up=False), replace(IB_A, up=False)),
    two_ports(replace(IB_A, gbps=200), IB_A),
    two_ports(IB_A, replace(IB_A, fabric="store")),
    two_ports(IB_A, IB_B),
    two_ports(ROUTED, replace(ROUTED, fabric="eth-a")),
    two_ports(ROUTED, replace(ROUTED, fabric="eth-b")),
    two_ports(ROUTED, IB_A),
)
"""What machines are bought with: two alike as a rule; else one that is down, slow, for storage or elsewhere."""

ALIKE = TWO_PORTS[:3]


@st.composite
def all_ports(draw: st.DrawFn) -> tuple[PortFacts, ...]:
    """Mostly a pair, else anything."""
    if draw(mostly(True, False, often=2)):
        return draw(st.sampled_from([*ALIKE, *ALIKE, *ALIKE, *TWO_PORTS]))
    return tuple(draw(ports(index)) for index in range(draw(st.sampled_from([0, 1, 2, 2, 3]))))


@st.composite
def all_gpus(draw: st.DrawFn) -> tuple[GpuFacts, ...]:
    """Four as a rule, all free; sometimes none, fewer, or with gaps in their numbers where one fell off the bus."""
    indices = draw(mostly((0, 1, 2, 3), (), (0,), (0, 1), (1, 3), (0, 1, 2, 5, 6), often=12))
    if draw(mostly(True, False, False, often=3)):
        return tuple(GpuFacts(index, 100 + index, "H100", 80 * GIB, numa=index // 2) for index in indices)
    return tuple(draw(gpus(index)) for index in indices)


@st.composite
def machine(draw: st.DrawFn, number: int) -> MachineFacts:
    return MachineFacts(
        name=f"m{number:02d}",
        id=1000 + number,
        pool=draw(mostly("p", "q", "", often=6)),
        state=draw(STATES),
        cpu_millicores=16_000,
        cpu_free_millicores=draw(mostly(16_000, 4_000, often=12)),
        memory_bytes=64 * GIB,
        memory_free_bytes=draw(mostly(64, 8, often=12)) * GIB,
        gpus=draw(all_gpus()),
        ports=draw(all_ports()),
        rack=draw(st.sampled_from(["r1", "r1", "r2", "r3", None])),
        nvlink_domain=draw(mostly(None, "d1", "d1", "d2", often=5)),
        labels=draw(st.sampled_from([{}, {"zone": "a"}, {"zone": "a", "disk": "fast"}])),
        drives=draw(st.sampled_from([frozenset(), frozenset({"data"}), frozenset({"data", "home"})])),
    )


@st.composite
def clusters(draw: st.DrawFn, most: int = 6) -> list[MachineFacts]:
    """Up to `most` machines: each drawn for itself while they are few, else of one to three kinds, as bought.

    Sometimes all have the same ports, else they would seldom meet on a fabric that is out of the ordinary.
    """
    machines = draw(all_machines(most))
    ports = draw(st.sampled_from([None, None, None, *TWO_PORTS]))
    return machines if ports is None else [replace(one, ports=ports) for one in machines]


@st.composite
def all_machines(draw: st.DrawFn, most: int) -> list[MachineFacts]:
    count = draw(st.sampled_from([0, 1, 2, *range(3, most + 1), *range(3, most + 1)]))
    if count <= 6 and draw(mostly(True, False, often=3)):
        return [draw(machine(number)) for number in range(count)]
    kinds = [draw(machine(number)) for number in range(draw(st.sampled_from([1, 2, 3])))]
    racks = draw(st.sampled_from([1, 2, 4]))
    return [
        replace(
            kinds[number % len(kinds)],
            name=f"m{number:02d}",
            id=1000 + number,
            rack=draw(mostly(f"r{number // racks}", None, often=9)),
        )
        for number in range(count)
    ]


# Requests.


def some_of(fields: dict[str, st.SearchStrategy[Any]], most: int) -> st.SearchStrategy[dict[str, Any]]:
    """Values for at most so many of the fields: with all of them at once nothing would ever find room."""
    names = st.lists(st.sampled_from(sorted(fields)), max_size=most, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: fields[name] for name in chosen}))


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, int]:
    """Fields of GroupRequest that say how many GPUs and machines."""
    kind = draw(st.sampled_from(["cpu", "exact", "exact", "exact", "range", "free", "free"]))
    if kind == "cpu":
        return {draw(mostly("machines", "min_nodes", often=3)): draw(st.sampled_from([1, 2, 3]))}
    if kind == "exact":
        count = draw(st.sampled_from([1, 2, 2, 2, 3, 4]))
        return {"machines": count, "gpus": count * draw(st.sampled_from([1, 1, 2, 2, 3, 4])) + draw(UNEVEN)}
    if kind == "range":
        low = draw(st.sampled_from([1, 2]))
        most = low + draw(st.sampled_from([0, 1, 2]))
        fields = {"min_nodes": low, "max_nodes": most, "gpus": draw(st.sampled_from([2, 4, 6, 8, 12]))}
        left_out = draw(mostly("", "min_nodes", "max_nodes", often=4))
        return {name: value for name, value in fields.items() if name != left_out}
    return {
        "gpus": draw(st.sampled_from([1, 2, 3, 4, 5, 6, 8, 8, 16])),
        "min_per_machine": draw(st.sampled_from([1, 1, 2, 4])),
    }


UNEVEN = mostly(0, 1, often=30)


def named(*names: str) -> frozenset[str]:
    return frozenset(names)


SELECTIONS = some_of(
    {
        "pools": mostly(named("p"), named("p", "gone"), named("gone"), often=4),
        "machines": mostly(named("m00", "m01", "m02", "m03", "gone"), named("m02", "m03", "m04")),
        "match_labels": mostly({"zone": "a"}, {"zone": "b"}, {"zone": "a", "disk": "fast"}),
        "exclude_machines": mostly(named("m00"), named("m01", "gone")),
    },
    most=2,
).map(lambda fields: Selection(**fields))

RULES: dict[str, st.SearchStrategy[Any]] = {
    "models": mostly(named("H100"), named("H100", "A100"), named("A100"), named("B200"), often=6),
    "healthy_only": st.just(True),
    "min_memory_bytes": st.just(60 * GIB),
    "interconnect": st.sampled_from(
        ["ethernet", "rdma", "rdma", "rdma", "infiniband", "infiniband", "infiniband", "nvlink", "nvlink"]
    ),
    "min_gbps": st.sampled_from([200, 400]),
    "keep_within": st.sampled_from(["nvlink_domain", "rack", "rack", "fabric", "fabric"]),
    "spread": st.sampled_from(["machine", "rack", "rack", "fabric", "fabric"]),
    "selection": SELECTIONS,
    "drives": mostly(named("data"), named("data", "home"), named("gone"), often=12),
}
USUAL = mostly(
    {},
    {"interconnect": "infiniband", "keep_within": "fabric", "min_gbps": 400},
    {"interconnect": "rdma", "keep_within": "fabric"},
    {"interconnect": "rdma", "keep_within": "rack"},
    {"interconnect": "nvlink", "keep_within": "nvlink_domain"},
    often=12,
)
"""Rules that people write together."""

CORES = mostly({}, {"cpu_millicores_per_gpu": 2_000}, {"cpu_millicores": 6_000}, often=5)
MEMORY = mostly({}, {"memory_bytes_per_gpu": 9 * GIB}, {"memory_bytes": 16 * GIB}, often=5)


@st.composite
def group_requests(draw: st.DrawFn, name: str = "", rules: int = 4) -> GroupRequest:
    fields = {**draw(shapes()), **draw(CORES), **draw(MEMORY), **draw(USUAL)}
    fields |= draw(some_of(RULES, most=rules))
    if "gpus" not in fields:  # refused in the run document
        fields = {field: value for field, value in fields.items() if not field.endswith("_per_gpu")}
    return GroupRequest(name=name, **fields)


CIRCUMSTANCES: dict[str, st.SearchStrategy[Any]] = {
    "allowed_pools": mostly(named("p", "q"), named("p"), named(), often=6),
    "over_cap": mostly(named("q"), named("p"), often=3),
    "guaranteed_to_others": mostly(named("q"), named("p", "gone"), often=3),
    "reserved": mostly(named("m02"), named("m01", "m03", "gone"), often=2),
    "occupied": st.just(named("m01")),
    "avoid": st.sampled_from(
        [{"m00": 1.0}, {"m00": 0.5, "m01": 2.0, "m02": 0.5}, {"gone": 9.0, "m01": 0.0, "m02": 1.0}]
    ),
    "prefer": st.just(named("m02")),
}


@st.composite
def requests(draw: st.DrawFn, groups: int = 1, rules: int = 4) -> Request:
    """All fields: what the run asks, what policy and order allow, what the run has been through.

    At most `rules` of them at once for one group, and half as many for each of several.
    """
    names = [f"g{number}" if groups > 1 else "" for number in range(groups)]
    asked = [draw(group_requests(name, rules if groups == 1 else rules // 2)) for name in names]
    return Request(groups=tuple(asked), **draw(some_of(CIRCUMSTANCES, most=rules // 2)))
