"""Random clusters on which little is missing, with the runs that hold their GPUs, and requests that nearly fit."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from placement import GpuFacts, GroupRequest, MachineFacts, MachineState, PortFacts, Request, Selection
from placement.holdings import Hold, Holding
from placement.whatif import Named
from tests.placement.asking import GIB
from tests.placement.strategies import clusters, requests


@st.composite
def busy_clusters(draw: st.DrawFn) -> tuple[list[MachineFacts], list[Named]]:
    """A cluster, and runs that hold its held GPUs: a machine's all together, or two runs sharing them."""
    facts = draw(clusters())
    shares: dict[int, list[Hold]] = {}
    for machine in facts:
        held = tuple(gpu.index for gpu in machine.gpus if gpu.held)
        cpu = machine.cpu_millicores - machine.cpu_free_millicores
        memory = machine.memory_bytes - machine.memory_free_bytes
        if not held and not cpu and not memory:
            continue
        first, second = draw(st.sampled_from([(1, 1), (1, 2), (2, 3), (3, 3)]))
        cut = draw(st.integers(0, len(held)))
        parts = [(first, held)] if first == second else [(first, held[:cut]), (second, held[cut:])]
        for number, (key, gpus) in enumerate(parts):
            hold = Hold(machine.name, gpus, 0 if number else cpu, 0 if number else memory)
            shares.setdefault(key, []).append(hold)
    named = [Named(Holding(key, tuple(holds), None), f"run-{key}", key == 2) for key, holds in shares.items()]
    return facts, named


SOUND = MachineFacts(
    name="",
    pool="p",
    cpu_millicores=16_000,
    cpu_free_millicores=16_000,
    memory_bytes=64 * GIB,
    memory_free_bytes=64 * GIB,
    gpus=tuple(GpuFacts(index=index, id=index, model="H100", memory_bytes=80 * GIB) for index in range(4)),
    ports=tuple(PortFacts(f"mlx5_{number}:1", gbps=400, fabric="ib-a") for number in range(2)),
    rack="r1",
    nvlink_domain="d1",
    labels={"zone": "a"},
)


def each_gpu(**fields: Any) -> dict[str, Any]:
    return {"gpus": tuple(replace(gpu, **fields) for gpu in SOUND.gpus)}


def first_gpu(**fields: Any) -> dict[str, Any]:
    return {"gpus": (replace(SOUND.gpus[0], **fields), *SOUND.gpus[1:])}


def each_port(**fields: Any) -> dict[str, Any]:
    return {"ports": tuple(replace(port, **fields) for port in SOUND.ports)}


TROUBLES: list[dict[str, Any]] = [
    {"state": MachineState.READY | MachineState.CORDONED},
    {"state": MachineState.READY | MachineState.DRAINING | MachineState.CORDONED},
    {"state": MachineState.UNREACHABLE},
    {"pool": "q"},
    {"pool": "r"},
    {"rack": None},
    {"rack": "r2"},
    {"nvlink_domain": None},
    {"nvlink_domain": "d2"},
    {"labels": {}},
    {"cpu_free_millicores": 9_000},
    {"memory_free_bytes": 30 * GIB},
    each_port(up=False),
    each_port(gbps=200),
    each_port(gbps=0),
    each_port(fabric=None),
    each_port(fabric="ib-b"),
    each_port(link="ethernet"),
    each_gpu(model="A100"),
    each_gpu(memory_bytes=40 * GIB),
    each_gpu(held=True),
    first_gpu(held=True),
    first_gpu(suspect=True),
    first_gpu(faulty=True),
    first_gpu(held=True, suspect=True),
]


@st.composite
def troubled_clusters(draw: st.DrawFn) -> tuple[list[MachineFacts], list[Named]]:
    """Alike machines, most of them with one trouble or two: little is missing for a gang on all of them."""
    facts = []
    for number in range(draw(st.integers(2, 4))):
        troubles = draw(st.lists(st.sampled_from(TROUBLES), max_size=2))
        fields = {name: value for trouble in troubles for name, value in trouble.items()}
        facts.append(replace(SOUND, **{"name": f"m{number}", "id": number, **fields}))
    return facts, held_by(facts, draw(st.booleans()))


def held_by(facts: list[MachineFacts], together: bool) -> list[Named]:
    """Held GPUs in one run, or in one on each machine."""
    holds = [
        Hold(machine.name, tuple(gpu.index for gpu in machine.gpus if gpu.held), 0, 0) for machine in facts
    ]
    runs = [tuple(holds)] if together else [(hold,) for hold in holds if hold.gpus]
    return [Named(Holding(key, part, None), f"run-{key}", False) for key, part in enumerate(runs)]


@st.composite
def strict_requests(draw: st.DrawFn) -> Request:
    """One group that asks for the sound machines, as many as there are or one fewer."""
    count = draw(st.integers(1, 3))
    selections = [
        Selection(),
        Selection(),
        Selection(pools=frozenset({"p"})),
        Selection(match_labels={"zone": "a", "disk": "fast"}),
        Selection(match_labels={"zone": "a"}),
        Selection(machines=frozenset({"m0", "m1"})),
        Selection(exclude_machines=frozenset({"m0", "m1"})),
    ]
    group = GroupRequest(
        gpus=4 * count,
        machines=count,
        models=draw(st.sampled_from([frozenset(), frozenset({"H100"})])),
        healthy_only=draw(st.booleans()),
        min_memory_bytes=draw(st.sampled_from([0, 80 * GIB])),
        cpu_millicores_per_gpu=draw(st.sampled_from([None, 4_000])),
        memory_bytes_per_gpu=draw(st.sampled_from([None, 16 * GIB])),
        interconnect=draw(st.sampled_from(["any", "rdma", "infiniband", "infiniband", "nvlink"])),
        min_gbps=draw(st.sampled_from([None, 400, 400])),
        keep_within=draw(st.sampled_from([None, "rack", "fabric"])),
        spread=draw(st.sampled_from([None, None, None, "rack"])),
        selection=draw(st.sampled_from(selections)),
    )
    return Request((group,), reserved=draw(st.sampled_from([frozenset[str](), frozenset({"m1"})])))


CLUSTERS = st.one_of(busy_clusters(), troubled_clusters(), troubled_clusters())


@st.composite
def closed_requests(draw: st.DrawFn) -> Request:
    """Mostly one group; sometimes policy or order close something."""
    request = draw(requests(groups=draw(st.sampled_from([1, 1, 1, 2]))))
    nothing: frozenset[str] = frozenset()
    pools, machines = (
        [nothing, nothing, nothing, frozenset({"p"})],
        [nothing, nothing, frozenset({"m0", "m1"})],
    )
    return replace(
        request,
        over_cap=draw(st.sampled_from(pools)),
        guaranteed_to_others=draw(st.sampled_from(pools)),
        reserved=draw(st.sampled_from(machines)),
    )


REQUESTS = st.one_of(closed_requests(), strict_requests(), strict_requests())
