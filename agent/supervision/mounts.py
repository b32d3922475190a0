"""Drives in a sandbox that is built but not started: what is mounted must be what the agent has opened.

bubblewrap follows paths, and another worker that may write to the drive can change them at any moment. So the
agent opens a directory beneath the drive's root and notes its identity, and here it is compared: a path that was
changed in between leads to a worker that isn't started, never to one that sees something else.
"""

import os

from agent.supervision.records import read

_ROOTS = ("/newroot", "")
"""bubblewrap builds the sandbox below /newroot, and makes that the root at last, about when it says it is done."""


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
        if (int(device), int(inode)) not in [_identity(f"/proc/{child}/root{root}{path}") for root in _ROOTS]:
            return f"The drive at {path} changed its place while it was mounted. Start the run again."
    return ""


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - no pathlib here, see the package
    except OSError:
        return None
    return found.st_dev, found.st_ino
