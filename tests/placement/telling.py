"""A random case as people read it: the cluster in the notation of `drawing.py`, the request without its defaults."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

from placement import GpuFacts, MachineFacts, PortFacts

GIB = 1 << 30


def told(value: Any) -> str:
    """A cluster drawn, one machine a line; anything else in one line."""
    if isinstance(value, list) and value and all(isinstance(one, MachineFacts) for one in value):
        return "\n".join(map(_machine, value))
    return _machine(value) if isinstance(value, MachineFacts) else _brief(value)


def _machine(one: MachineFacts) -> str:
    state = ",".join(str(flag.name).lower() for flag in one.state)
    words = {
        "rack": one.rack,
        "nvl": one.nvlink_domain,
        "pool": one.pool,
        "state": state if state != "ready" else None,
        "cpu": f"{one.cpu_free_millicores / 1000:g}/{one.cpu_millicores / 1000:g}",
        "mem": f"{one.memory_free_bytes / GIB:g}/{one.memory_bytes / GIB:g}",
        "label": " ".join(f"{key}:{value}" for key, value in one.labels.items()) or None,
        "drive": ",".join(sorted(one.drives)) or None,
    }
    told_words = [f"{key}={value}" for key, value in words.items() if value is not None]
    return "  ".join([one.name, *_gpus(one.gpus), *map(_port, one.ports), *told_words])


def _gpus(gpus: Iterable[GpuFacts]) -> list[str]:
    """One word for each kind of GPU: model, memory, and a cell for each of its GPUs."""
    kinds: dict[tuple[str, int], str] = {}
    for gpu in gpus:
        kind = (gpu.model or "unknown", gpu.memory_bytes // GIB)
        kinds[kind] = kinds.get(kind, "") + _cell(gpu)
    return [f"{model}:{size}GiB {cells}" for (model, size), cells in kinds.items()]


def _cell(gpu: GpuFacts) -> str:
    if gpu.faulty:
        return "x"
    if gpu.suspect:
        return "!" if gpu.held else "?"
    return "#" if gpu.held else "."


def _port(port: PortFacts) -> str:
    kind = "ib" if port.link == "infiniband" else "roce"
    return f"{kind}:{port.fabric or ''}@{port.gbps}{'' if port.up else '-down'}"


def _brief(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_brief, value))})"
    if not is_dataclass(value):
        return repr(value)
    # The default of a field that has a factory is empty.
    differing = [
        f"{each.name}={_brief(part)}"
        for each in fields(value)
        if (part := getattr(value, each.name)) != each.default and part not in ("", {}, frozenset())
    ]
    return f"{type(value).__name__}({', '.join(differing)})"
