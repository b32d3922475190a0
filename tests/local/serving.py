"""Local services in a process of their own, and what tests ask about processes."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from console.local.instance import ROOT

SERVE = Path(__file__).with_name("serve.py")


@dataclass
class Serving:
    """The services of tests/local/serve.py, answering. `keeper` is the process that was started."""

    keeper: subprocess.Popen[bytes]
    pid: int  # the keeper's child, which does the work
    pids: list[int]  # PostgreSQL's and Redis'
    database_url: str
    redis_url: str

    def end(self) -> int:
        """As a clean exit does; returns the exit status."""
        if self.keeper.stdin:
            self.keeper.stdin.close()
        return self.keeper.wait(timeout=30)

    def wait_gone(self) -> None:
        """Waits until neither the processes nor anything below them is there."""
        wait_gone([self.keeper.pid, self.pid, *self.pids])


def wait_gone(pids: Iterable[int], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    pids = list(pids)
    while left := [pid for pid in pids if exists(pid)]:
        assert time.monotonic() < deadline, f"still there: {[psutil.Process(p).cmdline() for p in left]}"
        time.sleep(0.02)


def exists(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def spawn(
    root: Path,
    *,
    durable: bool = False,
    prefix: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts serve.py without waiting for anything."""
    return subprocess.Popen(
        [*prefix, sys.executable, SERVE, root, str(int(durable))],
        env=env or clean_env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def clean_env() -> dict[str, str]:
    """Ours, without the services that the whole test run uses."""
    env = {name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
    return {**env, "PYTHONPATH": str(ROOT)}


def first_line(process: subprocess.Popen[bytes]) -> str:
    """What it prints when the services answer; fails with its error output when it ended before."""
    assert process.stdout
    assert process.stderr
    line = process.stdout.readline()
    assert line, process.stderr.read().decode()
    return line.decode()


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {condition} in vain"
        time.sleep(0.02)
