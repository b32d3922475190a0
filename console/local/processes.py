"""Long-running child processes: started with a log file, signalled by pid, ended for certain."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from console.local import interruption
from console.local.errors import LocalError

T = TypeVar("T")


@dataclass(frozen=True)
class Command:
    """How to start a process; kept so that it can be started again after a crash."""

    name: str  # names the log file and stands in messages
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    log: Path
    # What the kernel sends when the process that started it is gone: kill -9 of `./dev` leaves nothing.
    orphan_signal: str = "KILL"
    stop_signal: signal.Signals = signal.SIGTERM
    keep_open: tuple[int, ...] = ()
    # False where the command changes its user on the way and must set its own orphan signal after that.
    wrap: bool = True


@dataclass
class Process:
    """A started Command. All methods may be called after its end."""

    command: Command
    popen: subprocess.Popen[bytes]
    log_start: int
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def start(cls, command: Command) -> "Process":
        """Starts without waiting for anything; raises LocalError when the program is not there."""
        command.log.parent.mkdir(parents=True, exist_ok=True)
        argv = list(command.argv)
        if command.wrap:
            argv = ["setpriv", "--pdeathsig", command.orphan_signal, "--", *argv]
        with command.log.open("ab") as log:
            log_start = log.tell()
            try:
                popen = subprocess.Popen(
                    argv,
                    cwd=command.cwd,
                    env=dict(command.env),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # A session of its own: Ctrl-C reaches `./dev` only, which ends things in order.
                    start_new_session=True,
                    pass_fds=command.keep_open,
                )
            except FileNotFoundError as error:
                raise LocalError(
                    f"{command.name} can't be started: there is no program {argv[0]!r}."
                ) from error
        return cls(command, popen, log_start)

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def output(self, limit: int = 4000) -> str:
        """The last `limit` bytes that this start (not an earlier one) wrote to its log."""
        with self.command.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self.log_start, size - limit))
            return log.read().decode(errors="replace").strip()

    def has_written(self, text: str) -> bool:
        """Whether this start has written `text` to its log."""
        return text in self.output(limit=1 << 30)

    def ended(self) -> LocalError:
        """The error to raise when it has ended although it was needed."""
        text = self.output() or "(it wrote nothing)"
        how = describe_exit(self.popen.poll())
        return LocalError(f"{self.command.name} ended {how}. The end of {self.command.log}:\n{text}")

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def stop(self, seconds: float = 10) -> None:
        """Asks it to end and waits; after `seconds`, or when the person hurries, kills it."""
        self.send(self.command.stop_signal)
        self.wait_or_kill(time.monotonic() + seconds)

    def wait_or_kill(self, deadline: float) -> None:
        while self.alive and time.monotonic() < deadline and not interruption.hurried():
            time.sleep(0.02)
        if self.alive:
            self.send(signal.SIGKILL)
        self.popen.wait()


def describe_exit(status: int | None) -> str:
    """Puts a Popen return code into words."""
    if status is None:
        return "not yet"
    if status < 0:
        return f"by {signal.Signals(-status).name}"
    return f"with status {status}"


def stop_all(processes: Sequence[Process], seconds: float = 10) -> None:
    """Ends them together: all are asked first, then all are waited for."""
    for process in processes:
        process.send(process.command.stop_signal)
    deadline = time.monotonic() + seconds
    for process in processes:
        process.wait_or_kill(deadline)


def wait_until(
    condition: Callable[[], T | None],
    *,
    seconds: float,
    what: str,
    needs: Sequence[Process] = (),
    interval: float = 0.03,
) -> T:
    """Waits until `condition` returns something true, and returns it.

    Raises LocalError after `seconds`, and at once when one of the processes it `needs` has ended.
    """
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        for process in needs:
            if not process.alive:
                raise process.ended()
        if time.monotonic() > deadline:
            tails = "".join(f"\nThe end of {p.command.log}:\n{p.output()}" for p in needs)
            raise LocalError(f"Waited {seconds:g} s for {what} in vain.{tails}")
        time.sleep(interval)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on; somebody may before it is used."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number: int = probe.getsockname()[1]
    return number


def listen(preferred: int | None = None) -> socket.socket:
    """A socket that listens on 127.0.0.1: on the preferred port when it is free, else on any."""
    if preferred is not None:
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", preferred))
    return socket.create_server(("127.0.0.1", 0))
