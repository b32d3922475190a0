"""A program in a sandbox like a worker's, built and started at once; nothing of it outlives this process or the agent.

The sandbox ends when its program has ended, when its time is up, and when the lifeline breaks, a pipe whose other end
the agent holds. Should this process be killed, bubblewrap takes the sandbox along (`--die-with-parent`).
"""

import os
import select
import sys
import time

from agent.supervision.records import Record, dump, lock_taken, settings_read
from agent.supervision.sandbox_process import PIPE_BYTES, SandboxProcess
from agent.supervision.secrets import Secrets

_OUTPUT_BYTES = 8192
_EARLIER_SECONDS, _EARLIER_LOOK_SECONDS = 5.0, 0.01
"""How long the one before, of an agent that has died, may take to end."""
_SIGKILL = 9


def main(lifeline: int, directory: str, seconds: float) -> int:
    """Writes what came of the program to stdout, as agent/inside.py reads it."""
    os.chdir(directory)
    if not _alone():
        result: Record = {"error": "an earlier check of this worker still runs"}
    else:
        result = Trial(lifeline, seconds).run()
    sys.stdout.buffer.write(dump(result))
    return 0


def _alone() -> bool:
    until = time.monotonic() + _EARLIER_SECONDS
    while not lock_taken():
        if time.monotonic() > until:
            return False
        time.sleep(_EARLIER_LOOK_SECONDS)
    return True


class Trial:
    def __init__(self, lifeline: int, seconds: float) -> None:
        self._lifeline = lifeline
        self._until = time.monotonic() + seconds
        self._sandbox = SandboxProcess(settings_read(), Secrets(None))
        self._poll = select.poll()
        self._output = b""
        self._result: Record = {}
        self._over = False

    def run(self) -> Record:
        sandbox = self._sandbox
        self._poll.register(sandbox.ready, 0)
        for descriptor in (sandbox.status, sandbox.output, sandbox.fd, self._lifeline):
            self._poll.register(descriptor, select.POLLIN)
        while not self._over:
            left = self._until - time.monotonic()
            if left <= 0:
                self._give_up({"timed_out": True})
            for descriptor, _ in self._poll.poll(max(0.0, left) * 1000 + 1):
                self._happened(descriptor)
        return {**self._said(), **self._result}

    def _happened(self, descriptor: int) -> None:
        sandbox = self._sandbox
        if descriptor == sandbox.ready:
            self._unwatch(descriptor)
            sandbox.status_read()
            sandbox.release()
        elif descriptor == sandbox.status and not sandbox.status_read():
            self._unwatch(descriptor)
        elif descriptor == sandbox.output:
            self._read()
        elif descriptor == sandbox.fd:
            self._end()
        elif descriptor == self._lifeline:
            self._unwatch(descriptor)
            self._give_up({"error": "the agent has given it up"})

    def _unwatch(self, descriptor: int) -> None:
        try:
            self._poll.unregister(descriptor)
        except KeyError:  # two events of one poll may lead here
            return

    def _read(self) -> bool:
        """False when nothing was there."""
        try:
            data = os.read(self._sandbox.output, PIPE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._unwatch(self._sandbox.output)
        self._output = (self._output + data)[-_OUTPUT_BYTES:]
        return bool(data)

    def _give_up(self, result: Record) -> None:
        self._result = self._result or result
        self._until = float("inf")
        self._sandbox.signal(_SIGKILL)

    def _end(self) -> None:
        """bubblewrap has ended; what it has left, killed early, waits for it."""
        os.waitpid(self._sandbox.pid, 0)
        while self._sandbox.status_read():
            pass
        if self._sandbox.child or self._sandbox.orphan_find():
            self._sandbox.signal(_SIGKILL)
            gone = select.poll()
            gone.register(self._sandbox.child_fd, select.POLLIN)
            gone.poll()
        self._over = True

    def _said(self) -> Record:
        while self._read():
            pass
        return {"code": self._sandbox.code, "output": self._output.decode(errors="replace")}
