"""The helper process from the agent's side: started, listened to with a deadline, given up when it hangs."""

import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from agent.discovery.answers import NvmlAnswer

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "agent.discovery.helper")
_MOST_LINE = 16 * 1024 * 1024
_REAP_SECONDS = 2.0


@dataclass(frozen=True)
class Deadlines:
    """Seconds."""

    first: float = 90.0
    """Without nvidia-persistenced, opening the library initializes every GPU: seconds each."""
    next: float = 20.0
    restart: float = 30.0


@dataclass(frozen=True)
class Silent:
    """The library hasn't answered for so long."""

    seconds: float


@dataclass(frozen=True)
class Ended:
    """The helper has ended without saying why. `code` as subprocess has it: negative for a signal."""

    code: int


Problem = Silent | Ended


class NvmlProcess:
    """Calls `heard` with each answer and `failed` with each problem, from a thread of its own."""

    def __init__(
        self,
        heard: Callable[[NvmlAnswer], None],
        failed: Callable[[Problem], None],
        *,
        command: Sequence[str] = COMMAND,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._heard = heard
        self._failed = failed
        self._command = command
        self._deadlines = deadlines or Deadlines()
        self._closed = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._kill()
        self._thread.join(_REAP_SECONDS)

    def _run(self) -> None:
        while not self._closed.is_set():
            # One that even SIGKILL can't end sits in the driver: another would only join it.
            if self._process is None or self._process.poll() is not None:
                try:
                    self._once()
                except OSError as error:  # no process, no memory: the next try may have some
                    log.warning("NVML's helper can't be started: %s", error)
            self._closed.wait(self._deadlines.restart)

    def _once(self) -> None:
        """One helper, until it ends or hangs."""
        self._process = process = _start(self._command)
        told = False
        with _output(process) as pipe:
            try:
                for line in _lines(pipe.fileno(), self._deadlines):
                    told = self._take(line)
            except LateError as late:
                self._fail(Silent(late.seconds))
                self._kill()
                return
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(_REAP_SECONDS)
            if not told or code != 0:
                self._fail(Ended(code))

    def _take(self, line: bytes) -> bool:
        """Whether the line says why nothing more comes."""
        answer = _answer(line)
        if answer is None:
            return False
        self._heard(answer)
        return answer.failure is not None

    def _fail(self, problem: Problem) -> None:
        if not self._closed.is_set():
            self._failed(problem)

    def _kill(self) -> None:
        if self._process is not None:
            _end(self._process)


def ask_once(
    *, seconds: float = 60.0, command: Sequence[str] = COMMAND, record: Path | None = None
) -> NvmlAnswer | Problem:
    """One answer, for a person who waits. `record`: file for what was asked and answered, for tests."""
    more = ["--record", str(record)] if record else []
    process = _start([*command, "--once", *more])
    with _output(process) as pipe:
        try:
            for line in _lines(pipe.fileno(), Deadlines(first=seconds)):
                answer = _answer(line)
                if answer is not None:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_REAP_SECONDS)
                    return answer
        except LateError as late:
            return Silent(late.seconds)
        finally:
            _end(process)
    return Ended(process.poll() or 0)


class LateError(Exception):
    """Nothing came for `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"nothing for {seconds} s")
        self.seconds = seconds


def _start(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Where `agent` lies, so that the helper finds it as this process did."""
    code = Path(__file__).resolve().parents[2]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=code, bufsize=0)


def _output(process: "subprocess.Popen[bytes]") -> IO[bytes]:
    assert process.stdout is not None  # noqa: S101 - for mypy: asked for in _start
    return process.stdout


def _end(process: "subprocess.Popen[bytes]") -> None:
    """One that sits in the driver may stay all the same."""
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_REAP_SECONDS)


def _lines(descriptor: int, deadlines: Deadlines) -> Iterator[bytes]:
    """Raises LateError when the next line is."""
    seconds, rest = deadlines.first, b""
    until = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise LateError(seconds)
        read = os.read(descriptor, 65536)
        if not read or len(rest) > _MOST_LINE:
            return
        *lines, rest = (rest + read).split(b"\n")
        yield from lines
        if lines:
            seconds = deadlines.next
            until = time.monotonic() + seconds


def _answer(line: bytes) -> NvmlAnswer | None:
    try:
        return NvmlAnswer.model_validate_json(line)
    except ValidationError:
        log.warning("NVML's helper said something that is no answer: %r", line[:200])
        return None
