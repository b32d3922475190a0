"""Ends processes that detached from the command which started them: the supervisors of an agent's workers."""

import contextlib
import os
import signal
import time
from pathlib import Path

from console.local.errors import LocalError

_SECONDS = 10.0
_PROGRAMS = (
    "python",
    "bwrap",
)  # what runs for an agent; a person's `tail -f` of a worker's log is left alone


def end_processes_of(directory: Path) -> None:
    """Kills every process that runs for the agents whose state lies in `directory`, until there is none.

    They are found by their command lines instead of by recorded pids: a pid on disk may be missing after a
    kill in the wrong moment, and may belong to somebody else by now.
    """
    deadline = time.monotonic() + _SECONDS
    while pids := processes_of(directory):
        if time.monotonic() > deadline:
            raise LocalError(f"These processes of {directory} can't be ended: {', '.join(map(str, pids))}.")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def processes_of(directory: Path) -> list[int]:
    """The pids of the Python and bubblewrap processes (not ours) that name `directory` or a path below it."""
    numbers = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in numbers if pid != os.getpid() and _runs_for(pid, str(directory))]


def _runs_for(pid: int, directory: str) -> bool:
    try:
        program, *arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False  # ended meanwhile
    if not Path(program).name.startswith(_PROGRAMS):
        return False
    return any(
        f"{argument}/".startswith(f"{directory}/") for argument in (*arguments, _working_directory(pid))
    )


def _working_directory(pid: int) -> str:
    """Tells whose a bubblewrap is that still waits for its start: its options are not in its command line."""
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/cwd").readlink())
    return ""
