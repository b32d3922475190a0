"""Machines from tests/agent/recorded, as discovery sees them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.discovery.answers import NvmlAnswer
from agent.discovery.gpus import GpuReader
from agent.discovery.machine import Discovery, Found
from agent.discovery.nvml_recorded import Replay
from agent.discovery.ports import Port
from agent.discovery.sources import Sources
from agent.discovery.tree_recorded import RecordedTree

RECORDED = Path(__file__).parent / "recorded"
BOOT = "0b1e5d7c-boot"


def answer_of(name: str, **changed: Any) -> NvmlAnswer:
    """What the driver of a recorded machine answers; `changed`: values of calls, such as
    {"nvmlDeviceGetRemappedRows(gpu3)": [0, 1, 1, 0]}."""
    replay = Replay.read(RECORDED / name / "nvml.json")
    replay.calls |= {call: {"value": value} for call, value in changed.items()}
    return GpuReader(replay).read()


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class RecordedMachine:
    """A recorded machine whose files, subnet managers, driver and clock the test holds in its hands."""

    name: str
    state: Path
    managers: Mapping[str, str] = field(default_factory=dict)
    """Port → GUID of its subnet manager, as sminfo would say."""
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.tree = RecordedTree.read(RECORDED / self.name / "tree.json")
        self.asked: list[str] = []
        self.discovery = self.restarted()

    def restarted(self, boot_id: str = BOOT) -> Discovery:
        """As another agent on the same state directory."""
        sources = Sources(tree=self.tree, ask_sm=self._ask, helper=(), clock=self.clock, epoch=lambda: 1.8e9)
        self.discovery = Discovery(self.state, boot_id, sources=sources)
        return self.discovery

    def _ask(self, port: Port) -> str | None:
        self.asked.append(port.name)
        return self.managers.get(port.name)

    def look(self, *, after: float = 10.0, hears: Any = None) -> Found:
        self.clock.now += after
        if hears is not None:
            self.discovery.hear(hears)
        return self.discovery.look()

    def port(self, name: str) -> Callable[..., None]:
        """Sets files of a port: machine.port("mlx5_0")(state="1: DOWN")."""

        def change(**files: str) -> None:
            base = f"sys/class/infiniband/{name}/ports/1"
            self.tree.files |= {f"{base}/{file}": text for file, text in files.items()}

        return change

    def remove(self, below: str) -> None:
        for path in [path for path in self.tree.files if path.startswith(f"{below}/")]:
            del self.tree.files[path]


def nvml_calls(name: str) -> dict[str, Any]:
    calls: dict[str, Any] = json.loads((RECORDED / name / "nvml.json").read_text())["calls"]
    return calls
