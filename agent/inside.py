"""Running a command inside a worker's sandbox or in one like it, from the agent's side.

agent/supervision/visit.py and agent/supervision/trial.py do the work.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.runtime import Lifeline, Ran

VISITOR, TRIAL = Path(__file__).with_name("visitor.py"), Path(__file__).with_name("trial.py")
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
    said = _helped(VISITOR, (), json.dumps(asked).encode(), seconds, lifeline)
    return _ran(said, "the worker has ended")


def trial_run(directory: Path, seconds: float, lifeline: Lifeline) -> Ran:
    """What `directory` describes as a supervisor's would, started at once, without an agent to obey.

    Returns when nothing of it is left. Raises OSError when no process can be started.
    """
    said = _helped(TRIAL, (str(directory), str(seconds)), b"", seconds, lifeline)
    return _ran(said, "it was killed")


def _helped(
    helper: Path, arguments: Sequence[str], asked: bytes, seconds: float, lifeline: Lifeline
) -> bytes | None:
    """What the helper says; None when it took too long."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(helper), str(lifeline.reader), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        pass_fds=(lifeline.reader,),
        start_new_session=True,
    )
    with process:
        try:
            said, _ = process.communicate(asked, timeout=seconds + _OVERTIME_SECONDS)
        except subprocess.TimeoutExpired:
            lifeline.cut()
            process.kill()
            return None
    return said


def _ran(said: bytes | None, silent: str) -> Ran:
    """`silent`: what it means when nothing is said."""
    if said is None:
        return Ran(timed_out=True)
    found: dict[str, Any] = json.loads(said) if said else {"error": silent}
    return Ran(
        code=found.get("code"),
        timed_out=bool(found.get("timed_out")),
        output=str(found.get("output", "")),
        error=str(found.get("error", "")),
    )
