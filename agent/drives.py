"""Drives: directories of this machine that a worker sees, and why one can't be had."""

import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from agent.beneath import open_beneath
from agent.config import Config
from agent.layout import Bind, target_of
from agent.runtime import NotPrepared
from wire.assignments import Assignment, DriveMount, Export

Result = TypeVar("Result")
_ANSWER_SECONDS = 20.0
"""The file server of a drive may be dead: then every look at it hangs, and the worker's reason should say so."""
_FULL_BYTES = 1 << 20


@dataclass(frozen=True)
class Drive:
    """A mount whose directory was there, and the identity by which it is known again in the sandbox."""

    bind: Bind
    device: int
    inode: int

    def line(self) -> str:
        """As agent/supervision/mounts.py reads it."""
        return f"{self.device} {self.inode} {target_of(self.bind.path)}\n"


def drives_find(config: Config, mounts: Sequence[DriveMount]) -> list[Drive]:
    """Raises NotPrepared with what is wrong with the first that can't be mounted."""
    return [in_time(config, mount, _find) for mount in mounts]


def drives_of(config: Config, assignment: Assignment, mounted: Sequence[Path]) -> list[Drive]:
    """All of a worker's; `mounted`: where its network mounts are (agent/network_drives.py). Raises NotPrepared."""
    there = [
        in_time(config, mount, partial(_find_mounted, place))
        for mount, place in zip(assignment.network_mounts, mounted, strict=True)
    ]
    return [*drives_find(config, assignment.mounts), *there]


def drive_path(config: Config, export: Export) -> str:
    """The directory of a drive of this machine, without symbolic links. Raises NotPrepared."""
    mount = DriveMount(drive=export.drive, source=export.path, mount_path="/", read_only=export.read_only)
    return in_time(config, mount, _find).bind.source


def _find_mounted(place: Path, config: Config, mount: DriveMount) -> Drive:
    """Of a drive that another machine has, mounted at `place`."""
    try:
        top = os.open(place, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        raise NotPrepared(_missing(config, mount, mount.source, error)) from error
    with ExitStack() as stack:
        stack.callback(os.close, top)
        shown = f"{mount.source}/{mount.sub_path}" if mount.sub_path else mount.source
        descriptor = _opened(config, mount, top, mount.sub_path, shown, stack)
        return _drive(config, mount, descriptor)


def in_time(
    config: Config,
    mount: DriveMount,
    look: Callable[[Config, DriveMount], Result],
    seconds: float = _ANSWER_SECONDS,
) -> Result:
    """What `look` returns or raises, unless it takes too long: then its thread is left to hang."""
    found: list[Result] = []
    raised: list[Exception] = []

    def run() -> None:
        try:
            found.append(look(config, mount))
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            raised.append(error)

    thread = threading.Thread(target=run, name=f"drive-{mount.drive}", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise NotPrepared(
            f"The drive {mount.drive} doesn't answer on {config.name}: nothing came from {mount.source} within "
            f"{seconds:.0f} s. Its file server may be down."
        )
    return found[0]


def _find(config: Config, mount: DriveMount) -> Drive:
    if any(character in mount.mount_path + mount.source + mount.sub_path for character in "\n\r\0"):
        raise NotPrepared(f"The drive {mount.drive} has a line break in one of its paths. Rename it.")
    with ExitStack() as stack:
        descriptor = _source(config, mount, stack)
        if mount.sub_path:
            below = f"{mount.source}/{mount.sub_path}"
            descriptor = _opened(config, mount, descriptor, mount.sub_path, below, stack)
        _refuse_hidden(config, mount, _path_of(descriptor))
        return _drive(config, mount, descriptor)


def _path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def _drive(config: Config, mount: DriveMount, descriptor: int) -> Drive:
    if not mount.read_only:
        _refuse_unwritable(config, mount, descriptor)
    identity = os.fstat(descriptor)
    bind = Bind(mount.mount_path, mount.drive, _path_of(descriptor), mount.read_only)
    return Drive(bind, identity.st_dev, identity.st_ino)


def _source(config: Config, mount: DriveMount, stack: ExitStack) -> int:
    """The drive's own directory, beneath the root that allows it."""
    source = Path(os.path.normpath(mount.source))
    root = next((Path(root) for root in config.drive_roots if source.is_relative_to(root)), None)
    if root is None:
        raise NotPrepared(
            f"The drive {mount.drive} lies at {mount.source}, which the agent of {config.name} doesn't let drives "
            f'use. To allow it, add "drive_roots": ["{source.parent}"] to agent.json there and restart the agent.'
        )
    try:
        top = os.open(root, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        raise NotPrepared(_missing(config, mount, str(root), error)) from error
    stack.callback(os.close, top)
    return _opened(config, mount, top, str(source.relative_to(root)), mount.source, stack)


def _opened(config: Config, mount: DriveMount, top: int, path: str, shown: str, stack: ExitStack) -> int:
    """`path` beneath the directory `top`; `shown` is what people call it."""
    try:
        descriptor = open_beneath(top, path)
    except OSError as error:
        raise NotPrepared(_missing(config, mount, shown, error)) from error
    stack.callback(os.close, descriptor)
    return descriptor


def _missing(config: Config, mount: DriveMount, path: str, error: OSError) -> str:
    causes = {
        errno.ENOENT: f"{path} is not there",
        errno.ENOTDIR: f"{path} is no directory",
        errno.EXDEV: f"{path} leads out of it, through a symbolic link or `..`",
        errno.ENOSYS: "the kernel is too old to open it safely; Linux 5.6 is needed",
    }
    cause = causes.get(error.errno or 0, f"{path}: {error.strerror}")
    return f"The drive {mount.drive} can't be used on {config.name}: {cause}."


def _refuse_hidden(config: Config, mount: DriveMount, path: str) -> None:
    for hidden in map(os.path.realpath, config.hidden()):
        if Path(hidden).is_relative_to(path) or Path(path).is_relative_to(hidden):
            raise NotPrepared(
                f"The drive {mount.drive} can't be used on {config.name}: {path} holds what the agent keeps from "
                f"workers ({hidden})."
            )


def _refuse_unwritable(config: Config, mount: DriveMount, descriptor: int) -> None:
    found = os.fstatvfs(descriptor)
    if found.f_flag & os.ST_RDONLY:
        raise NotPrepared(
            f"The drive {mount.drive} can't be written on {config.name}: its file system is mounted read-only there. "
            "Set `read_only`, or choose another drive."
        )
    no_room = found.f_blocks and found.f_bavail * found.f_frsize < _FULL_BYTES
    no_files = found.f_files and not found.f_favail
    if no_room or no_files:
        what = "less than 1 MiB is" if no_room else "no more files are"
        raise NotPrepared(f"The drive {mount.drive} is full on {config.name}: {what} left. Make room on it.")
