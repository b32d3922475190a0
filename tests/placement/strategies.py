"""Small random clusters and requests, drawn so that about half of the gangs find room and most rules matter often."""

from typing import Any

from hypothesis import strategies as st

from placement import GpuFacts, GroupRequest, MachineFacts, MachineState, PortFacts, Request, Selection

GIB = 1 << 30
READY = MachineState.READY


def mostly(common: Any, *rare: Any, often: int = 8) -> st.SearchStrategy[Any]:
    """The common value `often` times out of `often` + the number of rare ones."""
    return st.sampled_from([common] * often + list(rare))


STATES = mostly(
    READY, *(READY | other for other in MachineState if other is not READY), MachineState(0), often=40
)

HELD, SUSPECT, BOTH, FAULTY = (
    (True, False, False),
    (False, True, False),
    (True, True, False),
    (False, False, True),
)
FLAGS = mostly((False, False, False), HELD, HELD, SUSPECT, BOTH, FAULTY, often=12)


@st.composite
def gpus(draw: st.DrawFn, index: int) -> GpuFacts:
    held, suspect, faulty = draw(FLAGS)
    return GpuFacts(
        index=index,
        id=index,
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
    return PortFacts(
        name=f"mlx5_{number}:1",
        link=draw(mostly("infiniband", "ethernet", often=2)),
        up=draw(mostly(True, False, often=5)),
        gbps=draw(mostly(400, 200, 0, often=4)),
        fabric=draw(st.sampled_from(["ib-a", "ib-a", "ib-a", "ib-b", "store", None])),
    )


SOUND_PORTS = tuple(PortFacts(f"mlx5_{number}:1", gbps=400, fabric="ib-a") for number in range(2))


@st.composite
def all_ports(draw: st.DrawFn) -> tuple[PortFacts, ...]:
    """Usually two good InfiniBand ports on one fabric, else anything."""
    if draw(mostly(True, False, False, False, often=4)):
        return SOUND_PORTS
    return tuple(draw(ports(index)) for index in range(draw(st.sampled_from([0, 1, 2, 2, 3]))))


@st.composite
def machine(draw: st.DrawFn, number: int) -> MachineFacts:
    return MachineFacts(
        name=f"m{number}",
        id=number,
        pool=draw(mostly("p", "q", "")),
        state=draw(STATES),
        cpu_millicores=16_000,
        cpu_free_millicores=draw(mostly(16_000, 4_000)),
        memory_bytes=64 * GIB,
        memory_free_bytes=draw(mostly(64, 8)) * GIB,
        gpus=tuple(draw(gpus(index)) for index in range(draw(st.sampled_from([0, 1, 2, 4, 4, 4, 4])))),
        ports=draw(all_ports()),
        rack=draw(st.sampled_from(["r1", "r1", "r2", "r3", None])),
        nvlink_domain=draw(st.sampled_from(["d1", "d1", "d2", None])),
        labels=draw(st.sampled_from([{}, {"zone": "a"}, {"zone": "a", "disk": "fast"}])),
        drives=draw(st.sampled_from([frozenset(), frozenset({"data"}), frozenset({"data", "home"})])),
    )


@st.composite
def clusters(draw: st.DrawFn, most: int = 5) -> list[MachineFacts]:
    """Mostly three machines or more; sometimes all alike, as real clusters are."""
    count = draw(st.sampled_from([1, 2, *range(3, most + 1), *range(3, most + 1)]))
    if draw(mostly(False, True, often=4)):
        one = draw(machine(0))
        fields = {name: getattr(one, name) for name in one.__slots__}
        return [MachineFacts(**{**fields, "name": f"m{number}", "id": number}) for number in range(count)]
    return [draw(machine(number)) for number in range(count)]


@st.composite
def selections(draw: st.DrawFn) -> Selection:
    return Selection(
        pools=draw(mostly(None, frozenset({"p"}))),
        machines=draw(mostly(None, frozenset({"m0", "m1", "m2", "gone"}))),
        match_labels=draw(mostly({}, {"zone": "a"}, {"zone": "b"}, often=20)),
        exclude_machines=draw(mostly(frozenset(), frozenset({"m0"}))),
    )


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, int]:
    """Fields of GroupRequest that say how many GPUs and machines."""
    kind = draw(st.sampled_from(["cpu", "exact", "exact", "range", "free"]))
    if kind == "cpu":
        return {"machines": draw(st.sampled_from([1, 2, 3]))}
    if kind == "exact":
        count = draw(st.sampled_from([1, 2, 2, 3]))
        return {"machines": count, "gpus": count * draw(st.sampled_from([1, 1, 2, 2, 3, 4]))}
    if kind == "range":
        low = draw(st.sampled_from([1, 2]))
        most = low + draw(st.sampled_from([0, 1, 2]))
        return {"min_nodes": low, "max_nodes": most, "gpus": draw(st.sampled_from([2, 3, 4, 6, 8]))}
    return {
        "gpus": draw(st.sampled_from([1, 2, 3, 4, 5, 6, 8])),
        "min_per_machine": draw(st.sampled_from([1, 2])),
    }


@st.composite
def group_requests(draw: st.DrawFn, name: str = "") -> GroupRequest:
    return GroupRequest(
        name=name,
        **draw(shapes()),
        models=draw(
            mostly(
                frozenset(), frozenset({"H100"}), frozenset({"B200"}), frozenset({"H100", "A100"}), often=10
            )
        ),
        healthy_only=draw(mostly(False, True, often=3)),
        min_memory_bytes=draw(mostly(0, 60 * GIB, often=6)),
        cpu_millicores_per_gpu=draw(mostly(None, 2_000, often=4)),
        memory_bytes=draw(mostly(None, 16 * GIB, often=4)),
        interconnect=draw(
            st.sampled_from(["any", "any", "any", "ethernet", "rdma", "infiniband", "infiniband", "nvlink"])
        ),
        min_gbps=draw(mostly(None, 200, 400, often=3)),
        keep_within=draw(mostly(None, "nvlink_domain", "rack", "fabric", often=5)),
        spread=draw(mostly(None, "machine", "rack", "fabric", often=9)),
        selection=draw(selections()),
        drives=draw(mostly(frozenset(), frozenset({"data"}))),
    )


@st.composite
def requests(draw: st.DrawFn, groups: int = 1) -> Request:
    return Request(
        groups=tuple(draw(group_requests(f"g{number}" if groups > 1 else "")) for number in range(groups)),
        allowed_pools=draw(mostly(None, frozenset({"p", "q"}), often=4)),
        occupied=draw(mostly(frozenset(), frozenset({"m1"}))),
        avoid=draw(mostly({}, {"m0": 1.0}, {"m0": 0.5, "m1": 2.0, "m2": 0.5}, often=4)),
        prefer=draw(mostly(frozenset(), frozenset({"m2"}), often=3)),
    )
