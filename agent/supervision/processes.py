"""Facts about processes and the machine, read from /proc."""

import os
import time

from agent.supervision.records import read

# Signals that end a process without a handler. The kernel spares process 1 of a namespace from that.
_ENDING = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 29, 30, 31})

_PF_EXITING = 0x4


def boottime() -> float:
    """Seconds since boot, time in suspend included, untouched by changes of the clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_started(pid: int) -> int:
    """Start time in clock ticks since boot: together with the pid it names a process for good."""
    return int(read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19])


def is_exiting(pid: int) -> bool:
    """Whether the process is on its way out (the kernel's PF_EXITING) or gone."""
    try:
        return bool(int(read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[6]) & _PF_EXITING)
    except OSError:
        return True


def sharers(descriptor: int, number: int) -> list[int]:
    """The other processes whose descriptor `number` is the same file as our `descriptor`."""
    ours, found = os.fstat(descriptor), []
    for name in os.listdir("/proc"):  # noqa: PTH208 - no pathlib here, see the package
        try:
            theirs = os.stat(f"/proc/{name}/fd/{number}")  # noqa: PTH116
        except OSError:  # no process, another user's, or gone
            continue
        if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino) and name.isdecimal():
            found.append(int(name))
    return [pid for pid in found if pid != os.getpid()]


def command_line(pid: int) -> bytes:
    """NUL-separated; empty for a process that is ending or gone."""
    try:
        return read(f"/proc/{pid}/cmdline")
    except OSError:
        return b""


def executable(pid: int) -> str:
    """Path of the program that the process runs; empty for one that is ending or gone."""
    try:
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 - no pathlib here, see the package
    except OSError:
        return ""


def ends_by_default(pid: int, signum: int) -> bool:
    """Whether the signal would end the process if it were an ordinary one: no handler, not ignored."""
    if signum not in _ENDING:
        return False
    try:
        lines = read(f"/proc/{pid}/status").splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith((b"SigCgt:", b"SigIgn:"))]
    return not any(mask >> (signum - 1) & 1 for mask in masks)


def kills_for_memory() -> int:
    """Processes that the kernel has killed for memory since boot."""
    for line in read("/proc/vmstat").splitlines():
        if line.startswith(b"oom_kill "):
            return int(line.split()[1])
    return 0
