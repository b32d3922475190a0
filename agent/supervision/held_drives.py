"""A container's drives, mounted below the agent's own directory from when they were looked at until it is started.

Loaded only where there are any: ctypes takes its milliseconds.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any

PREFIX = "drive-"
_BIND, _RECURSIVE, _SLAVE, _DETACH = 0x1000, 0x4000, 0x80000, 0x2
_libc = ctypes.CDLL(None, use_errno=True)


def mount_held(descriptor: int, place: str) -> None:
    """That very directory, whatever its path leads to by now. Raises OSError."""
    _call(
        _libc.mount,
        f"/proc/self/fd/{descriptor}".encode(),
        os.fsencode(place),
        None,
        _BIND | _RECURSIVE,
        None,
    )
    # What is unmounted here must not go from the drive as well.
    _call(_libc.mount, None, os.fsencode(place), None, _SLAVE | _RECURSIVE, None)


def unmount(place: str) -> None:
    """With what is mounted below it. Raises OSError."""
    _call(_libc.umount2, os.fsencode(place), _DETACH)


def release_held(directory: str) -> None:
    """The container has its own mounts now. What can't be released here the agent does when the worker is gone."""
    try:
        for name in os.listdir(directory):  # noqa: PTH208 - no pathlib here, see the package
            if name.startswith(PREFIX):
                unmount(f"{directory}/{name}")
                os.rmdir(f"{directory}/{name}")  # noqa: PTH106 - as above
        os.rmdir(directory)  # noqa: PTH106 - as above
    except OSError:  # as where drives of other machines are mounted beside them
        return


def _call(function: Callable[..., Any], *arguments: object) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
