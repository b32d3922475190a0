"""Drives of other machines, mounted over NFSv4 below the agent's own directory while a worker needs them.

    <state>/mounts/<assignment id>/0, 1, ...   in the order of the assignment's network mounts

A file server may be dead: every look at a mount, mounting and unmounting happen in programs and threads that are given
up after a while, never in one that something else waits for.
"""

import logging
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from agent.config import Config
from agent.journal import Entry
from agent.mount_table import mounted
from agent.runtime import NotPrepared
from wire.assignments import Assignment, NetworkMount

log = logging.getLogger(__name__)

_MOUNTS = "mounts"
_MOUNT_SECONDS, _UNMOUNT_SECONDS = 30, 20
_EXPORTED_SECONDS = 60.0
"""The other machine's agent hears of the run when this one does, and may be slower."""
_RETRY_SECONDS = 0.5
_NOT_YET = ("access denied", "no such file", "not permitted", "refused")
_OPTIONS = "vers=4,proto=tcp,nosuid,nodev,retry=0"
_READING, _WRITING = "ro,softerr,timeo=300,retrans=3", "rw,hard"
"""With a dead server reading fails after some minutes; writing waits: what is written must not be lost in silence."""


def mounts_of(config: Config, name: str) -> Path:
    """Where all that is mounted for an assignment is; `NetworkDrives.unmount` clears it."""
    return config.state / _MOUNTS / name


def mount_places(config: Config, assignment: Assignment) -> list[Path]:
    """Where an assignment's network mounts are, in their order."""
    mounts = range(len(assignment.network_mounts))
    return [mounts_of(config, assignment.id) / str(number) for number in mounts]


class NetworkDrives:
    """Of one agent; safe to use from several threads."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._root = config.state / _MOUNTS

    def clean(self, held: Collection[str]) -> None:
        """Unmounts what earlier agents left of assignments that are not among `held`. Never raises."""
        for left in self._root.glob("*") if self._root.is_dir() else ():
            if left.name not in held:
                self.unmount(left.name)

    def mount(self, assignment: Assignment, given_up: threading.Event) -> None:
        """Raises NotPrepared; returns early when it is `given_up`."""
        for mount, place in zip(
            assignment.network_mounts, mount_places(self._config, assignment), strict=True
        ):
            self._mount(mount, place, given_up)

    def _mount(self, mount: NetworkMount, place: Path, given_up: threading.Event) -> None:
        if str(place) in mounted():
            return
        until = time.monotonic() + _EXPORTED_SECONDS
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        while not given_up.is_set():
            flaw = _run(_mount_command(mount, place), _MOUNT_SECONDS)
            if not flaw:
                return
            if not _may_come(flaw) or time.monotonic() > until:
                raise NotPrepared(self._why(mount, flaw))
            given_up.wait(_RETRY_SECONDS)

    def _why(self, mount: NetworkMount, flaw: str) -> str:
        return (
            f"The drive {mount.drive} of {mount.machine} can't be mounted on {self._config.name}: {flaw}. "
            f"Check that the NFS server runs on {mount.machine} and that its agent lets drives lie there."
        )

    def unmount(self, name: str) -> None:
        """All of an assignment's; a mount whose server is dead is cut off. Never raises."""
        directory = self._root / name
        if not directory.is_dir():
            return
        for place in sorted(path for path in mounted() if Path(path).parent == directory):
            flaw = _run(("umount", place), _UNMOUNT_SECONDS)
            if flaw and (flaw := _run(("umount", "-f", "-l", place), _UNMOUNT_SECONDS)):
                log.warning("%s can't be unmounted: %s", place, flaw)
                return
        # Directory by directory: should a mount be left, nothing of the drive is ever removed.
        for empty in (*directory.glob("*"), directory):
            try:
                empty.rmdir()
            except OSError as error:
                log.warning("%s can't be removed: %s", empty, error.strerror)
                return


def _mount_command(mount: NetworkMount, place: Path) -> tuple[str, ...]:
    server = f"[{mount.address}]" if ":" in mount.address else mount.address
    access = _READING if mount.read_only else _WRITING
    return ("mount", "-t", "nfs", "-o", f"{_OPTIONS},{access}", f"{server}:{mount.source}", str(place))


def _may_come(flaw: str) -> bool:
    return any(words in flaw.lower() for words in _NOT_YET)


def _run(command: tuple[str, ...], seconds: float) -> str:
    """What went wrong; empty when nothing did."""
    program = shutil.which(command[0]) or f"/usr/bin/{command[0]}"
    try:
        done = subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {seconds:g} s; its file server may be down"
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return "" if done.returncode == 0 else (said[-1].rstrip(".") if said else f"{command[0]} failed")


class Mounting:
    """The network mounts of one worker. `wake` is called when there is something new."""

    def __init__(self, entry: Entry, drives: NetworkDrives, wake: Callable[[], None]) -> None:
        self._entry = entry
        self._drives = drives
        self._wake = wake
        self._given_up = threading.Event()
        self._thread: threading.Thread | None = None
        self._done = False
        self.flaw = ""

    def done(self, assignment: Assignment) -> bool:
        """Begins when it is due; True when all are there."""
        if not assignment.network_mounts or self._done:
            return True
        if self._thread is None and not self._given_up.is_set():
            self._thread = threading.Thread(
                target=self._run, args=(assignment,), name=f"drives-{self._entry.id}", daemon=True
            )
            self._thread.start()
        return False

    def end(self) -> bool:
        """Give it up. True when nothing of it runs any more."""
        self._given_up.set()
        return self._thread is None or not self._thread.is_alive()

    def _run(self, assignment: Assignment) -> None:
        try:
            self._drives.mount(assignment, self._given_up)
            self._done = not self._given_up.is_set()
        except NotPrepared as error:
            self.flaw = str(error)
        except OSError as error:
            self.flaw = f"Drives of other machines can't be mounted: {error.strerror or error}."
        finally:
            self._wake()
