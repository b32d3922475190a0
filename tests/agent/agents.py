"""Real agents on state directories of their own, and what tests ask of them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.mount_table import mounted
from agent.supervision.held_drives import unmount
from tests.agent.fake_console import CREDENTIAL, FakeConsole
from wire.assignments import Assignment

ROOT = Path(__file__).parents[2]


def eventually(condition: Callable[[], Any], what: str, seconds: float = 15) -> Any:
    """The condition's first true value; for what no report announces."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {seconds} s")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@dataclass
class AgentProcess:
    """`python -m agent run` on a state directory of its own."""

    console: FakeConsole
    state: Path
    name: str = "gpu-01"
    process: subprocess.Popen[bytes] | None = None

    def join(self, **more: Any) -> "AgentProcess":
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        config = {"server": self.console.url, "credential": CREDENTIAL, "name": self.name, **more}
        (self.state / "agent.json").write_text(json.dumps(config))
        return self

    def launch(self) -> "AgentProcess":
        with (self.state / "agent.err").open("ab") as errors:
            command = [sys.executable, "-m", "agent", "run", "--state-dir", str(self.state)]
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=errors)
        return self

    def start(self) -> "AgentProcess":
        """Returns when the console has heard of it."""
        before = len(self.console.requests)
        self.launch()
        self.console.wait(lambda: len(self.console.requests) > before, "the agent's first request")
        return self

    def kill(self) -> None:
        """As SIGKILL from outside would."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, signum: int) -> int:
        assert self.process is not None
        self.process.send_signal(signum)
        return self.process.wait(15)

    def said(self) -> str:
        return (self.state / "agent.err").read_text()

    def directory(self, name: str) -> Path:
        return self.state / "assignments" / name

    def record(self, name: str) -> dict[str, Any]:
        """The supervisor's state of a worker."""
        record: dict[str, Any] = json.loads((self.directory(name) / "state.json").read_text())
        return record

    def clean(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        for path in self.state.glob("assignments/*/state.json"):
            record = json.loads(path.read_text())
            if alive(record["supervisor"]) and _works_in(record["supervisor"], path.parent):
                os.kill(record["supervisor"], signal.SIGKILL)
        for place in mounted():  # drives of workers that never started
            if Path(place).is_relative_to(self.state.resolve()):
                unmount(place)


def _works_in(pid: int, directory: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == directory.resolve()
    except OSError:  # it has just ended
        return False


def worker(name: str = "a1", script: str = "true", **more: Any) -> Assignment:
    """An assignment that runs a bash script."""
    facts: dict[str, Any] = {
        "id": name,
        "phase": "start",
        "run": "ddp",
        "worker": "ddp-0",
        "attempt": 1,
        "rank": 0,
        "command": "bash",
        "args": ("-c", script),
    }
    return Assignment(**(facts | more))
