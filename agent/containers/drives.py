"""Drives of a container, held from the moment they were looked at until it is started.

The engine follows a mount's path when the container starts, long after the agent has looked at it, and a worker that
may write to the drive can change the path meanwhile. So the directory itself is mounted below the agent's own, where
nobody else changes anything, and the engine gets that path. The supervisor unmounts it as soon as the container runs:
whoever removes the directory of an agent that has ended must not find a drive in it.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.config import Config
from agent.drives import Drive, in_time
from agent.mount_table import mounted
from agent.runtime import NotPrepared
from agent.supervision.held_drives import PREFIX, mount_held, unmount
from wire.assignments import DriveMount


def drives_hold(config: Config, drives: Sequence[Drive], directory: Path) -> list[Drive]:
    """The same drives, each at a path below `directory`. An agent that isn't root can mount nothing: as they were.

    Raises NotPrepared, also OSError.
    """
    if os.geteuid() != 0:
        return list(drives)
    return [_hold(config, drive, directory / f"{PREFIX}{number}") for number, drive in enumerate(drives)]


def _hold(config: Config, drive: Drive, place: Path) -> Drive:
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    mount = DriveMount(
        drive=drive.bind.drive,
        source=drive.bind.source,
        mount_path=drive.bind.path,
        read_only=drive.bind.read_only,
    )
    in_time(config, mount, partial(_mount, drive, place))
    return replace(drive, bind=replace(drive.bind, source=str(place)))


def _mount(drive: Drive, place: Path, config: Config, mount: DriveMount) -> None:
    descriptor = os.open(mount.source, os.O_PATH | os.O_DIRECTORY)
    try:
        if not _is(drive, os.fstat(descriptor)):
            raise NotPrepared(
                f"The drive {mount.drive} changed its place on {config.name} while it was mounted. Start the run again."
            )
        while str(place) in mounted():  # of an earlier try
            unmount(str(place))
        mount_held(descriptor, str(place))
    finally:
        os.close(descriptor)


def _is(drive: Drive, found: os.stat_result) -> bool:
    return (found.st_dev, found.st_ino) == (drive.device, drive.inode)
