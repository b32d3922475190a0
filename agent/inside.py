"""Running a command inside a worker's sandbox, from the agent's side: agent/supervision/visit.py does the work."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.runtime import Lifeline, Ran

VISITOR = Path(__file__).with_name("visitor.py")
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
_OVERTIME_SECONDS = 10.0
"""How long after its time is up a command may still be ending before it is given up."""


@dataclass(frozen=True)
class Sandboxed:
    """A worker's process 1, and what a command beside it gets."""

    pid: int
    started: int
    """Its start time, so that another process that has got its number is not taken for it."""
    environment: Mapping[str, str]
    directory: str
    user: tuple[int, int, tuple[int, ...]] | None
    """uid, gid and groups; None when the worker runs as the agent does."""


def run_inside(sandboxed: Sandboxed, command: Sequence[str], seconds: float, lifeline: Lifeline) -> Ran:
    """Returns when the command and all its descendants have ended. Raises OSError when no process can be started."""
    asked = {
        "pid": sandboxed.pid,
        "started": sandboxed.started,
        "command": list(command),
        "environment": dict(sandboxed.environment),
        "directory": sandboxed.directory,
        "user": sandboxed.user,
        "seconds": seconds,
    }
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(VISITOR), str(lifeline.reader)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        pass_fds=(lifeline.reader,),
        start_new_session=True,
    )
    with process:
        try:
            said, _ = process.communicate(json.dumps(asked).encode(), timeout=seconds + _OVERTIME_SECONDS)
        except subprocess.TimeoutExpired:
            lifeline.cut()
            process.kill()
            return Ran(timed_out=True)
    return _ran(said)


def _ran(said: bytes) -> Ran:
    """Nothing is said when the worker's end has taken the command along."""
    found: dict[str, Any] = json.loads(said) if said else {"error": "the worker has ended"}
    return Ran(
        code=found.get("code"),
        timed_out=bool(found.get("timed_out")),
        output=str(found.get("output", "")),
        error=str(found.get("error", "")),
    )
