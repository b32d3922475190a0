"""Leaves no process behind, whatever is killed.

`run_kept` forks: the child does the work, the parent (the keeper) only waits. As a *subreaper* the keeper
inherits every process whose parent dies below it, the agents' supervisors among them, which detach on purpose
to outlive their agent. When the child is gone, in whatever way, the keeper ends what is left. When the keeper
is killed, the kernel tells the child, which ends everything in order.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from console.local import interruption
from console.local.errors import LocalError

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_END_BY_ITSELF_SECONDS = 5.0  # what is left gets this long: PostgreSQL writes its checkpoint meanwhile
_INTERRUPTED_SECONDS = 60.0  # the child must have cleaned up this long after a signal


def run_kept(work: Callable[[], int], *, foreground: bool = False) -> int:
    """Runs `work` in a child process and returns its exit status after everything it started is gone.

    `foreground` leaves the child in the terminal's foreground group, for a program that itself reads the
    terminal (pytest's debugger): Ctrl-C then reaches that program directly.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, interruption.SIGNALS)
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        _run_child(work, keeper, foreground=foreground)
    forwarding = _Forwarding(child, foreground=foreground)
    for number in interruption.SIGNALS:
        signal.signal(number, forwarding.on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, interruption.SIGNALS)
    status = _wait_for(child, forwarding)
    _end_descendants()
    return status


def _run_child(work: Callable[[], int], keeper: int, *, foreground: bool) -> None:
    """The child's whole life; never returns."""
    status = 1
    try:
        if not foreground:
            os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        interruption.install()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, interruption.SIGNALS)
        if os.getppid() == keeper:  # else the keeper died before the kernel was asked to tell
            status = work()
    except interruption.Interrupted as signalled:
        status = signalled.status
    except LocalError as error:
        print(f"./dev: {error}", file=sys.stderr)
    except BaseException:  # noqa: BLE001 - the fork must end here, not run on in the parent's code
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


class _Forwarding:
    """Passes signals on to the child, which is not in the terminal's foreground group and gets none."""

    def __init__(self, child: int, *, foreground: bool) -> None:
        self.child = child
        self.foreground = foreground
        self.first_signal: float | None = None

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.first_signal = self.first_signal or time.monotonic()
        if self.foreground and number == signal.SIGINT:
            return  # the terminal has sent it to the whole group already
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, number)

    @property
    def overdue(self) -> bool:
        return self.first_signal is not None and time.monotonic() > self.first_signal + _INTERRUPTED_SECONDS


def _wait_for(child: int, forwarding: _Forwarding) -> int:
    """Reaps everything that ends below the keeper until the child itself has; returns its exit status.

    Orphans are reaped at once: to an agent that looks for its supervisor's pid, a zombie would seem alive.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # blocked, it is kept for sigtimedwait
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if pid == 0:
            if forwarding.overdue:
                os.kill(child, signal.SIGKILL)
            signal.sigtimedwait([signal.SIGCHLD], 1.0)


def _end_descendants() -> None:
    """Waits a little for what is ending by itself, then kills until there is nothing below this process."""
    deadline = time.monotonic() + _END_BY_ITSELF_SECONDS
    while _reap():
        if time.monotonic() > deadline:
            for pid in descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _reap() -> bool:
    """Collects ended children; False when there are none left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def descendants(root: int) -> list[int]:
    """All processes below `root`, nearest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found = list(children.get(root, ()))
    for pid in found:  # grows while it is walked
        found.extend(children.get(pid, ()))
    return found


def _parent(entry: Path) -> int | None:
    try:
        text = (entry / "stat").read_text(errors="replace")
    except OSError:
        return None  # ended between the listing and the look
    return int(text[text.rindex(")") + 2 :].split()[1])  # the name before may hold anything, parentheses too


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
