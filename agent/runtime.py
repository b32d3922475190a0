"""The border between the agent and what runs workers: bubblewrap or Docker."""

import os
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from agent.journal import Entry, Facts
from wire.assignments import Assignment


class NotPrepared(Exception):
    """A worker that can't be prepared here; the message becomes its reason."""


@dataclass(frozen=True)
class Program:
    """A Python program of the agent's own, run beside a worker that isn't created yet."""

    source: bytes
    """A zip file that Python runs."""
    environment: Mapping[str, str]
    """Beyond the worker's own variables, and stronger."""
    seconds: float
    """How long it may run. What it needs first, an image, is fetched without a limit."""
    path: str = "/run/astraeus/preflight.pyz"
    """Where it stands in the worker's surroundings."""

    def command(self) -> tuple[str, ...]:
        """For the first Python on the worker's PATH; exit code 127 where there is none."""
        return ("sh", "-c", 'command -v python3 >/dev/null && exec python3 "$0"; exec python "$0"', self.path)

    def beside(self, assignment: Assignment) -> Assignment:
        """The assignment with this in place of its command, and without what is the worker's alone."""
        command, *arguments = self.command()
        return assignment.model_copy(
            update={
                "command": command,
                "args": tuple(arguments),
                "env": {**assignment.env, **self.environment},
                "files": (),
                "secrets": (),
                "mounts": (),
                "network_mounts": (),
                "working_dir": None,
            }
        )


@dataclass(frozen=True)
class Ran:
    """What came of a command inside a worker, or of a program beside it."""

    code: int | None = None
    """Its exit code, negative for the signal that ended it; None when it didn't come to its end."""
    timed_out: bool = False
    output: str = ""
    """The last of what it wrote, at most 8 KiB."""
    error: str = ""
    """Why it could not be run, or was given up."""


class Lifeline:
    """A command inside a worker ends when this is cut, and when this process dies."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        self._lock = threading.Lock()

    def cut(self) -> None:
        with self._lock:
            if self._writer >= 0:
                os.close(self._writer)
                self._writer = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        os.close(self.reader)


class Runtime(Protocol):
    """Everything is asked for by assignment, may be asked for again, and returns without waiting, `execute` and
    `try_out` excepted."""

    name: str

    def open(self) -> None:
        """Get ready for workers."""

    def close(self) -> None:
        """Let go of everything but the workers."""

    def version(self) -> str:
        """As the machine's page shows it."""

    def limits(self) -> tuple[str, ...]:
        """What it can't enforce on this machine, a sentence each."""

    def facts(self, entry: Entry) -> Facts:
        """How far the worker is."""

    def prepare(self, entry: Entry) -> None:
        """Create the worker without starting it. Raises NotPrepared, also OSError (a full disk)."""

    def start(self, entry: Entry) -> None:
        """Let a prepared worker go; at most one start ever comes of it."""

    def stop(self, entry: Entry) -> None:
        """Stop signal, grace, SIGKILL; a worker that was only prepared ends at once."""

    def fail(self, entry: Entry, kind: str) -> None:
        """Stop a worker that runs because it has failed; `kind` becomes its exit's."""

    def execute(
        self, entry: Entry, facts: Facts, command: Sequence[str], seconds: float, lifeline: Lifeline
    ) -> Ran:
        """Run a command inside a worker that runs, with its environment, and wait for it. Raises OSError."""

    def try_out(self, entry: Entry, program: Program, lifeline: Lifeline) -> Ran:
        """Run a program with a short-lived copy of the worker's surroundings: its image, network, devices, user and
        variables, neither secrets nor drives. Returns when nothing of it is left; what cuts the lifeline ends it. When
        this process ends, a sandbox ends with it; a container goes on until the program's own time is up, or the next
        agent removes it. Raises NotPrepared, also OSError."""

    def addresses(self, entry: Entry) -> tuple[str, ...]:
        """Where the worker's ports may be found, best first."""

    def clear(self, entry: Entry, facts: Facts) -> bool:
        """End what a worker without a supervisor has left. True when its whole process tree is gone, and what was
        tried out for it with it."""

    def release(self, entry: Entry) -> None:
        """Let go of what is held for an ended worker; returns within moments."""

    def sweep(self, known: Collection[str]) -> None:
        """End what earlier agents left of assignments that are not `known`: neither held here nor wanted by the
        console. Returns at once."""

    def lost_because(self, entry: Entry) -> str:
        """Why a worker ended without a record, a sentence."""

    def explain(self, entry: Entry, message: str) -> str:
        """The runtime's own message, said for people."""
