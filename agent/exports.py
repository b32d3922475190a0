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
import uuid
from collections.abc import Sequence
from pathlib import Path

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
    """Of one agent. Called from one thread at a time."""

    def __init__(self, config: Config, directory: Path = EXPORTS_D) -> None:
        self._config = config
        # Several agents may share a machine: each has a file of its own.
        name = hashlib.sha256(bytes(config.state)).hexdigest()[:16]
        self._file = directory / f"astraeus-{name}.exports"
        self._wanted: tuple[Export, ...] | None = None

    def apply(self, exports: Sequence[Export]) -> None:
        """Export these and nothing else. Never raises: who mounts what isn't exported says so in its reason."""
        wanted = tuple(exports)
        if wanted == self._wanted:
            return
        lines = "".join(sorted(line for export in wanted if (line := self._line(export))))
        try:
            self._write(lines)
        except OSError as error:
            log.warning("drives can't be exported: %s: %s", self._file, error.strerror)
            return
        self._wanted = wanted

    def _line(self, export: Export) -> str:
        """As exports(5) has it; empty for a drive that can't be exported."""
        try:
            path = drive_path(self._config, export)
        except NotPrepared as error:
            log.warning("drive %s isn't exported to %s: %s", export.drive, export.client, error)
            return ""
        # A file system such as tmpfs has no identity that a restart of the server would keep.
        identity = uuid.uuid5(uuid.NAMESPACE_URL, f"file://{path}")
        access = "ro" if export.read_only else "rw"
        return f"{_quoted(path)} {export.client}({access},{_COMMON},fsid={identity})\n"

    def _write(self, lines: str) -> None:
        """Raises OSError."""
        before = self._file.read_text() if self._file.exists() else ""
        if lines == before:
            return
        if lines:
            self._file.parent.mkdir(exist_ok=True)
            file_replace(self._file, lines.encode(), mode=_MODE)
        else:
            self._file.unlink(missing_ok=True)
        _reload()


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
