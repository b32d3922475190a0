"""What the agent has on disk about its assignments: a directory each, so that its death loses nothing.

    <state>/assignments/<id>/
        assignment.json   agent       the assignment as the console gave it, less its secrets
        launch            agent       settings for the supervisor, a line key=value each
        sandbox.args      agent       bubblewrap's options, NUL-separated; secrets reach it through memory
        command.args      agent       the command, NUL-separated
        files/0, 1, ...   agent       contents of configs
        mounts            agent       the drives' directories, to be known again inside the sandbox
        notes.json        agent       what preparing a container has to tell
        order             agent       "wait 0 0", "start 0 0", or "stop", "probe_failed" or "hung" with
                                      " <signal> <grace>": what the supervisor should do; written in place, as a
                                      stop must go out on a full disk too
        control, gate     agent       FIFOs: "look again" to the supervisor; bubblewrap's start
        lock              supervisor  locked for its life
        started           supervisor  the start marker: created once, before the command starts
        state.json        supervisor  how far it is, with the process ids
        log               supervisor  the worker's output, secrets masked
        watch.json        agent       what its probes and its silence have come to
        preflight.json    agent       what the checks before its start have come to
        trial/            agent       the same files for a program that is run beside the worker before it starts
        exit.json         supervisor  written last; the agent writes it when no supervisor can
        shipped           agent       bytes of the log that the console has

`started` without a held lock and without `exit.json` means Lost; nothing ever starts from there again.
"""

import fcntl
import json
import os
import re
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.files import directory_sync, fifo_make, file_replace
from agent.supervision.processes import process_started
from wire.assignments import Assignment

_SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_TRASH = ".trash-"
_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux
_SHIPPED_WIDTH = 20
_ORDER_WIDTH = 64


class JournalError(Exception):
    """An assignment that can't be kept on disk; the message is for people."""


@dataclass(frozen=True)
class Facts:
    """What an assignment's directory and the processes say, read at one moment."""

    alive: bool
    """A supervisor holds the lock."""
    marker: bool
    state: Mapping[str, Any] = field(default_factory=dict)
    exit: Mapping[str, Any] | None = None

    @property
    def phase(self) -> str:
        return str(self.state.get("phase", "preparing"))


@dataclass(frozen=True)
class Entry:
    """One assignment's directory. `assignment` is None when its record can't be read, `flaw` says why."""

    id: str
    path: Path
    assignment: Assignment | None
    flaw: str = ""

    def facts(self) -> Facts:
        # The lock first: a supervisor writes its exit before it lets go of the lock, so "not alive" read
        # before "no exit" is never a supervisor that has just ended well.
        alive = self._lock_held()
        return Facts(
            alive=alive,
            marker=(self.path / "started").exists(),
            state=self._record("state.json") or {},
            exit=self._record("exit.json"),
        )

    def trying(self) -> bool:
        """Whether a program that was run beside the worker still runs."""
        return self._lock_held("trial/lock")

    def _lock_held(self, name: str = "lock") -> bool:
        try:
            descriptor = os.open(self.path / name, os.O_RDWR)
        except OSError:
            return False
        try:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            found = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
        finally:
            os.close(descriptor)
        return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)

    def _record(self, name: str) -> Mapping[str, Any] | None:
        try:
            record = json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            return {"kind": "lost", "message": f"The record {name} can't be read: {error}"}
        return record if isinstance(record, dict) else {"kind": "lost", "message": f"{name} is no record"}

    def exit_write(self, kind: str, message: str, state: Mapping[str, Any] | None = None) -> None:
        """Record an end that no supervisor can record; `state`: what else is known of it. Raises OSError."""
        record = {**(state or {}), "kind": kind, "message": message, "ended_at": time.time()}
        file_replace(self.path / "exit.json", json.dumps(record).encode())

    def order_write(self, order: str) -> None:
        """Give the supervisor an order, again and again if need be. Raises OSError."""
        descriptor = os.open(self.path / "order", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(descriptor, order.ljust(_ORDER_WIDTH).encode(), 0)
        finally:
            os.close(descriptor)
        try:
            descriptor = os.open(self.path / "control", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no supervisor there yet (it reads the order when it comes) or any more
            return
        try:
            os.write(descriptor, b"x")
        except BlockingIOError:  # it has plenty of pokes waiting
            return
        finally:
            os.close(descriptor)

    def boot_id(self) -> str:
        """Of the boot in which a supervisor was last started, empty when none was."""
        try:
            lines = (self.path / "launch").read_text().splitlines()
        except (OSError, ValueError):
            return ""
        return next((line[5:] for line in lines if line.startswith("boot=")), "")

    def log_size(self) -> int:
        try:
            return (self.path / "log").stat().st_size
        except OSError:
            return 0

    def shipped(self) -> int:
        try:
            return int((self.path / "shipped").read_text())
        except (OSError, ValueError):
            return 0

    def shipped_write(self, offset: int) -> None:
        """Only a hint for the next start, the console knows best: neither synced nor worth an error."""
        try:
            descriptor = os.open(self.path / "shipped", os.O_WRONLY | os.O_CREAT, 0o600)
        except OSError:
            return
        try:
            os.pwrite(descriptor, str(offset).ljust(_SHIPPED_WIDTH).encode(), 0)
        except OSError:
            return
        finally:
            os.close(descriptor)

    def leftovers(self, facts: Facts, boot_id: str) -> list[int]:
        """Processes of this assignment that have lost their supervisor."""
        if self.boot_id() != boot_id:
            return []
        child = int(facts.state.get("child") or 0)
        running = [child] if child and _is(child, facts.state.get("child_started")) else []
        return sorted({*running, *self._at_the_gate()})

    def _at_the_gate(self) -> Iterator[int]:
        """bubblewrap processes that still wait for their start."""
        gate = str(self.path / "gate")
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if any(str(link.readlink()) == gate for link in (process / "fd").iterdir()):
                    yield int(process.name)
            except OSError:  # another user's, or gone
                continue


def _is(pid: int, started: Any) -> bool:
    try:
        return process_started(pid) == started and not _is_zombie(pid)
    except OSError:
        return False


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")


class Journal:
    """All assignments' directories below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for trash in root.glob(_TRASH + "*"):
            shutil.rmtree(trash, ignore_errors=True)

    def entries(self) -> list[Entry]:
        """Everything that earlier agents left here; a directory that can't be read is an entry too."""
        return [self._entry(path) for path in sorted(self.root.iterdir()) if _SAFE_ID.fullmatch(path.name)]

    def _entry(self, path: Path) -> Entry:
        try:
            assignment = Assignment.model_validate_json((path / "assignment.json").read_bytes())
        except (OSError, ValueError) as error:
            cause = error.strerror if isinstance(error, OSError) else "it is damaged"
            return Entry(path.name, path, None, f"The agent's record of this worker can't be read: {cause}.")
        return Entry(path.name, path, assignment)

    def create(self, assignment: Assignment) -> Entry:
        """Raises JournalError."""
        if not _SAFE_ID.fullmatch(assignment.id):
            raise JournalError(f"The assignment's id {assignment.id[:60]!r} can't name a directory.")
        path = self.root / assignment.id
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            file_replace(path / "assignment.json", assignment.stored().model_dump_json().encode())
            if not (path / "order").exists():
                file_replace(path / "order", "wait 0 0".ljust(_ORDER_WIDTH).encode(), sync=False)
            for name in ("control", "gate"):
                fifo_make(path / name)
            directory_sync(self.root)
        except OSError as error:
            raise JournalError(f"The agent can't write its journal: {error.strerror}.") from error
        return Entry(assignment.id, path, assignment)

    def forget(self, entry: Entry) -> None:
        """Remove the directory; half of a removal never looks like an assignment. Never raises."""
        trash = self.root / (_TRASH + entry.id)
        try:
            entry.path.rename(trash)
        except OSError:
            return
        shutil.rmtree(trash, ignore_errors=True)
