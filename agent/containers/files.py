"""Configs and secrets of a worker as files that its container mounts: secrets in memory, the rest in the journal."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.containers.settings import Bound
from agent.journal import Entry
from agent.mount_table import mounted
from agent.names import HOSTS, hosts_file
from agent.runtime import NotPrepared
from agent.secrets import secret_files
from wire.assignments import Assignment

_MEMORY_PLACES = (Path("/run"), Path("/dev/shm"))  # noqa: S108 - a directory of our own in it
_TMPFS = ("tmpfs", "ramfs")
_READABLE = 0o444


def config_files(
    entry: Entry, assignment: Assignment, owner: tuple[int, int] | None, *, machine: str, address: str
) -> list[Bound]:
    """Written anew, with the names that the worker finds, unless the run has an /etc/hosts of its own. `owner`: uid and
    gid of the worker; None where only its image knows them. Raises OSError."""
    wanted = [(file.path, file.mode, file.value.encode()) for file in assignment.files]
    if all(path != str(HOSTS) for path, _, _ in wanted):
        wanted.append((str(HOSTS), _READABLE, hosts_file(assignment, machine=machine, address=address)))
    return _written(entry.path / "files", wanted, owner)


def worker_secrets(entry: Entry, assignment: Assignment, owner: tuple[int, int] | None) -> list[Bound]:
    """As `config_files`, on a file system in memory. Raises NotPrepared where there is none."""
    wanted = secret_files(assignment)
    return _written(_secret_place(entry), wanted, owner) if wanted else []


def secrets_forget(entry: Entry) -> None:
    for place in _MEMORY_PLACES:
        shutil.rmtree(place / _directory(entry), ignore_errors=True)


def worker_owner(assignment: Assignment, image: Mapping[str, Any]) -> tuple[int, int] | None:
    """uid and gid, where they are numbers."""
    user = assignment.user or str((image.get("Config") or {}).get("User") or "") or "0"
    name, _, group = user.partition(":")
    if name == "root":
        name = "0"
    if not name.isdecimal() or (group and not group.isdecimal()):
        return None
    return int(name), int(group or 0)


def _written(place: Path, wanted: list[tuple[str, int, bytes]], owner: tuple[int, int] | None) -> list[Bound]:
    """No one else reaches them: the directory is the agent's own."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700, parents=True)
    found = []
    for number, (path, mode, data) in enumerate(wanted):
        file = place / str(number)
        file.write_bytes(data)
        if owner is not None and os.geteuid() == 0:
            os.chown(file, *owner)
        file.chmod(mode if owner is not None else mode | _READABLE)
        found.append(Bound(file, path))
    return found


def _secret_place(entry: Entry) -> Path:
    kinds = mounted()
    for place in _MEMORY_PLACES:
        if kinds.get(str(place)) in _TMPFS and os.access(place, os.W_OK):
            return place / _directory(entry)
    raise NotPrepared(
        "A secret can't be mounted as a file: neither /run nor /dev/shm is a file system in memory here. "
        "Give it to the worker as a variable (`env`), or mount a tmpfs at /run."
    )


def _directory(entry: Entry) -> str:
    return f"astraeus-{entry.id}"
