"""Clusters as text, one machine a line, so that a test shows what it is about.

    gpu-01  H100 ....|....  ib:ib-a  rack=r1
    gpu-02  H100 ..##|..?x  ib:ib-a@200  roce:@100x2-down  rack=r2  state=ready,cordoned

GPUs: `.` free, `#` held, `?` free and suspect, `!` held and suspect, `x` faulty; `|` parts NUMA nodes, `-` no GPU.
Ports: `ib:` or `roce:`, fabric (may be empty), `@` Gb/s (400), `x` how many (one per GPU, at least one), `-down`.
The rest is key=value: rack, nvl (NVLink domain), pool (h100), state (ready), cpu and mem (free of 128 cores, 2048 GiB),
gpumem (80 GiB each), label and drive (may be repeated).
"""

import re
from collections.abc import Iterable

from placement import GpuFacts, MachineFacts, MachineState, PortFacts

GIB = 1 << 30
_PORT = re.compile(r"(ib|roce):([^@x]*?(?:-[a-z])?)(?:@(\d+))?(?:x(\d+))?(-down)?$")


def machines(drawing: str) -> list[MachineFacts]:
    """The machines drawn; ids count from 1 in the order drawn, GPU ids are hundreds of that plus the index."""
    lines = [line.split("//")[0].split() for line in drawing.splitlines()]
    return [_machine(number, words) for number, words in enumerate(filter(None, lines), 1)]


def _machine(number: int, words: list[str]) -> MachineFacts:
    name, *rest = words
    model = rest.pop(0) if rest and "=" not in rest[0] and ":" not in rest[0] else ""
    cells = rest.pop(0) if model else ""
    given: dict[str, list[str]] = {}
    ports: list[PortFacts] = []
    count = len(cells.replace("|", "").replace("-", ""))
    for word in rest:
        key, equals, value = word.partition("=")
        if equals:
            given.setdefault(key, []).append(value)
        else:
            ports += _ports(word, len(ports), max(count, 1))

    def one(key: str, default: str) -> str:
        return given.get(key, [default])[0]

    return MachineFacts(
        name=name,
        id=number,
        pool=one("pool", "h100"),
        state=_state(one("state", "ready")),
        cpu_millicores=128_000,
        cpu_free_millicores=int(float(one("cpu", "128")) * 1000),
        memory_bytes=2048 * GIB,
        memory_free_bytes=int(one("mem", "2048")) * GIB,
        gpus=tuple(_gpus(number, model, cells, int(one("gpumem", "80")) * GIB)),
        ports=tuple(ports),
        rack=one("rack", "") or None,
        nvlink_domain=one("nvl", "") or None,
        labels=dict(pair.split(":") for pair in given.get("label", [])),
        drives=frozenset(given.get("drive", [])),
    )


def _state(names: str) -> MachineState:
    state = MachineState(0)
    for name in filter(None, names.split(",")):
        state |= MachineState[name.upper()]
    return state


def _gpus(machine: int, model: str, cells: str, memory: int) -> Iterable[GpuFacts]:
    index = 0
    for numa, node in enumerate(cells.split("|")):
        for cell in node.replace("-", ""):
            yield GpuFacts(
                index=index,
                id=100 * machine + index,
                model=model,
                memory_bytes=memory,
                numa=numa,
                held=cell in "#!",
                suspect=cell in "?!",
                faulty=cell == "x",
            )
            index += 1


def _ports(word: str, start: int, gpus: int) -> list[PortFacts]:
    found = _PORT.match(word)
    assert found, f"{word} is not a port; see the top of this file"
    kind, fabric, gbps, count, down = found.groups()
    return [
        PortFacts(
            name=f"mlx5_{start + number}:1",
            link="infiniband" if kind == "ib" else "ethernet",
            up=down is None,
            gbps=int(gbps or 400),
            fabric=fabric or None,
        )
        for number in range(int(count or gpus))
    ]
