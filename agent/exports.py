"""Drives of this machine that others mount, through the system's own NFS server.

They stand in a file of our own in /etc/exports.d, each for the addresses of the machines that need it and nobody else.
The file is all there is to know: it is written anew whenever the console wants something else, and after a restart of
the agent as well, so that nothing is exported for longer than its run.
"""

import hashlib
import logging
import os
import shutil
import subprocess
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

from agent.backoff import Backoff
from agent.config import Config
from agent.drives import drive_path
from agent.files import file_replace
from agent.runtime import NotPrepared
from wire.assignments import Export

log = logging.getLogger(__name__)

EXPORTS_D = Path("/etc/exports.d")
_SECONDS = 20
_MODE = 0o644
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@:,=")
_COMMON = "sync,no_subtree_check,no_root_squash"
"""A worker that is root reaches on the other machine what it reaches on this one."""


class Exports:
    """Of one agent. Safe to use from several threads."""

    def __init__(self, config: Config, directory: Path = EXPORTS_D) -> None:
        self._config = config
        # Several agents may share a machine: each has a file of its own.
        name = hashlib.sha256(bytes(config.state)).hexdigest()[:16]
        self._file = directory / f"astraeus-{name}.exports"
        self._state = threading.Condition()
        self._wanted: tuple[Export, ...] | None = None
        self._exported: tuple[Export, ...] | None = None
        self._busy = False
        self._written: str | None = None
        self._said: set[str] = set()

    def apply(self, exports: Sequence[Export]) -> None:
        """Export these and nothing else. Returns at once: a drive's file server may be dead, and the NFS server slow.

        What isn't possible is tried again until it is, or something else is wanted. Never raises: who mounts what
        isn't exported says so in its reason.
        """
        with self._state:
            self._wanted = tuple(exports)
            self._state.notify_all()
            if self._busy or self._wanted == self._exported:
                return
            self._busy = True
        threading.Thread(target=self._run, name="exports", daemon=True).start()

    def _run(self) -> None:
        """Ends when all that was wanted last is exported."""
        backoff = Backoff()
        wanted: tuple[Export, ...] | None = None
        while (new := self._next(wanted, backoff)) is not None:
            wanted = new
            done = self._export(wanted)
            with self._state:
                self._exported = wanted if done else None

    def _next(self, tried: tuple[Export, ...] | None, backoff: Backoff) -> tuple[Export, ...] | None:
        """What to export now: what is new at once, what wasn't possible again after a while. None: all is done."""
        with self._state:
            if self._exported is None and self._wanted == tried:
                self._state.wait_for(lambda: self._wanted != tried, backoff.next())
            if self._wanted != tried:
                backoff.reset()
                self._said.clear()
            self._busy = self._wanted != self._exported
            return self._wanted if self._busy else None

    def _export(self, wanted: Sequence[Export]) -> bool:
        """Whether all of it was possible."""
        try:
            lines = [self._line(export) for export in wanted]
            self._write("".join(sorted(lines)))
        except OSError as error:
            self._warn(f"drives can't be exported, tried again: {self._file}: {error.strerror}")
            return False
        except Exception:
            log.exception("drives can't be exported: unexpected error, tried again")
            return False
        return all(lines)

    def _warn(self, text: str) -> None:
        """Once for each order, however often it is tried."""
        if text not in self._said:
            self._said.add(text)
            log.warning("%s", text)

    def _line(self, export: Export) -> str:
        """As exports(5) has it; empty for a drive that can't be exported."""
        try:
            path = drive_path(self._config, export)
        except NotPrepared as error:
            self._warn(f"drive {export.drive} isn't exported to {export.client}: {error}")
            return ""
        # A file system such as tmpfs has no identity that a restart of the server would keep.
        identity = uuid.uuid5(uuid.NAMESPACE_URL, f"file://{path}")
        access = "ro" if export.read_only else "rw"
        return f"{_quoted(path)} {export.client}({access},{_COMMON},fsid={identity})\n"

    def _write(self, lines: str) -> None:
        """The file goes last: as long as it is there, the server may not have heard of its end. Raises OSError."""
        if lines == self._written or (not lines and not self._file.exists()):
            return
        self._written = None
        self._file.parent.mkdir(exist_ok=True)
        file_replace(self._file, lines.encode(), mode=_MODE)
        _reload()
        if not lines:
            self._file.unlink(missing_ok=True)
        self._written = lines


def _reload() -> None:
    """Has the server take over what stands in the files. Raises OSError."""
    program = shutil.which("exportfs", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if program is None:
        raise FileNotFoundError(0, "exportfs isn't there; install nfs-kernel-server")
    try:
        done = subprocess.run([program, "-ra"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise TimeoutError(0, f"exportfs didn't end within {_SECONDS} s") from None
    if done.returncode != 0:
        raise OSError(done.returncode, done.stderr.strip() or "exportfs failed")


def _quoted(path: str) -> str:
    return "".join(
        character
        if character in _PLAIN
        else "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))
        for character in path
    )
