"""Drives in a sandbox that is built but not started: what is mounted must be what the agent has opened.

bubblewrap follows paths, and another worker that may write to the drive can change them at any moment. So the
agent opens a directory beneath the drive's root and notes its identity, and here it is compared: a path that was
changed in between leads to a worker that isn't started, never to one that sees something else.
"""

import os
import time

from agent.supervision.records import read

_ROOTS = ("/newroot", "")
"""bubblewrap builds the sandbox below /newroot, and makes that the root at last, about when it says it is done."""
_PIVOT_SECONDS = 2.0
"""While the kernel swaps the roots, a path is below neither of them; on a busy machine for some milliseconds."""


def mounts_wrong(child: int) -> str:
    """Why the sandbox of process `child` can't be used; empty when all drives are the ones meant.

    `mounts` has a line `device inode path` for each, and is missing where there are none.
    """
    try:
        lines = read("mounts").decode().splitlines()
    except FileNotFoundError:
        return ""
    for line in lines:
        device, inode, path = line.split(" ", 2)
        if not _is_mounted(child, path, (int(device), int(inode))):
            return f"The drive at {path} changed its place while it was mounted. Start the run again."
    return ""


def _is_mounted(child: int, path: str, wanted: tuple[int, int]) -> bool:
    until = time.monotonic() + _PIVOT_SECONDS
    while wanted not in [_identity(f"/proc/{child}/root{root}{path}") for root in _ROOTS]:
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - no pathlib here, see the package
    except OSError:
        return None
    return found.st_dev, found.st_ino
