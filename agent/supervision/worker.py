"""A bubblewrap worker's supervisor, and what starts it or another runtime's.

bubblewrap has built the sandbox and waits at a gate: a byte in it lets the command be executed.
"""

import os
import time

from agent.supervision.keeper import SIGKILL, SIGNALLED, Keeper
from agent.supervision.mounts import mounts_wrong
from agent.supervision.processes import boottime, command_line, executable, is_exiting
from agent.supervision.records import errors_redirect, lock_taken, settings_read, spares_reserve
from agent.supervision.sandbox_process import PIPE_BYTES, SandboxProcess
from agent.supervision.secrets import Secrets
from agent.supervision.waiting import worker_received

ALREADY_KEPT, ALREADY_STARTED = 75, 76  # exit codes of this process


class Supervisor(Keeper):
    def __init__(self, settings: dict[str, str], held: dict[str, int]) -> None:
        secrets = Secrets(held.get("secrets"))
        super().__init__(settings, held, secrets.masks)
        self._sandbox = sandbox = SandboxProcess(settings, secrets)
        self._state["bwrap"] = sandbox.pid
        self._child_gone = False
        self._wait_status: int | None = None
        self._handle(sandbox.status, self._on_status)
        self._handle(sandbox.output, self._on_output)
        self._handle(sandbox.ready, self._on_ready, events=0)
        self._handle(sandbox.fd, self._on_bubblewrap_end)

    @property
    def _child(self) -> int:
        return self._sandbox.child

    def _over(self) -> bool:
        return self._wait_status is not None and (not self._sandbox.child or self._child_gone)

    def _signal(self, signum: int) -> None:
        self._sandbox.signal(signum)

    def _abandon(self) -> None:
        self._sandbox.signal(SIGKILL)

    # --- what happens

    def _on_status(self) -> None:
        known = self._sandbox.child
        if not self._sandbox.status_read():
            self._unwatch(self._sandbox.status)
        if self._sandbox.child and not known:
            self._state |= {"child": self._sandbox.child, "child_started": self._sandbox.child_started}
            self._handle(self._sandbox.child_fd, self._on_child_end)

    def _on_ready(self) -> None:
        self._unwatch(self._sandbox.ready)
        self._sandbox.ready_close()
        if not self._sandbox.child:  # its pid was written before the mounts began; only the poll was late
            self._on_status()
        # A death closes the socket too, and shows here before it shows anywhere else.
        if self._phase == "preparing" and self._sandbox.child and not is_exiting(self._sandbox.child):
            self._prepared()

    def _prepared(self) -> None:
        wrong = mounts_wrong(self._sandbox.child)
        if wrong:
            self._early += f"{wrong}\n".encode()
            self._sandbox.signal(SIGKILL)
            return
        self._enter("prepared", ready_at=time.time(), prepare_seconds=round(boottime() - self._begun, 4))
        self._obey()

    def _on_output(self) -> None:
        try:
            data = os.read(self._sandbox.output, PIPE_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._unwatch(self._sandbox.output)
        else:
            self._take(data)

    def _on_bubblewrap_end(self) -> None:
        self._unwatch(self._sandbox.fd)
        self._wait_status = os.waitpid(self._sandbox.pid, 0)[1]
        self._on_status()
        if not self._sandbox.child and self._sandbox.orphan_find():
            self._handle(self._sandbox.child_fd, self._on_child_end)
        if self._sandbox.child and not self._child_gone:
            # Killed early on, it leaves a process 1 that waits for it, without its own death being noticed.
            self._sandbox.signal(SIGKILL)

    def _on_child_end(self) -> None:
        self._unwatch(self._sandbox.child_fd)
        self._child_gone = True

    # --- its start

    def _let_go(self) -> None:
        self._waiting_line = command_line(self._sandbox.child)
        self._waiting_program = executable(self._sandbox.child)
        self._sandbox.release()

    def _watch_execution(self) -> None:
        """A successful exec changes the child's command line, a failed one ends bubblewrap.

        A program can make its command line look like any other, but not its executable.
        """
        line, program = command_line(self._sandbox.child), executable(self._sandbox.child)
        if line not in (b"", self._waiting_line) or program not in ("", self._waiting_program):
            self._has_run()
            self._enter("running")
            self._obey()  # a stop that came in between

    # --- the end

    def _collect(self) -> None:
        while self._sandbox.status_read():
            pass
        if not self._ran and self._sandbox.code is not None:  # it ended before its start was seen
            self._has_run()
        self._ran = self._ran or self._sandbox.code is not None
        self._drain()

    def _drain(self) -> None:
        while True:
            try:
                data = os.read(self._sandbox.output, PIPE_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            self._take(data)

    def _exit_code(self) -> int:
        if self._sandbox.code is not None:
            return self._sandbox.code
        # bubblewrap itself was killed, and the command with it
        return SIGNALLED + os.WTERMSIG(self._wait_status or SIGKILL)


def main(arguments: list[str]) -> int:
    """`DIRECTORY [port=DESCRIPTOR] [secrets=DESCRIPTOR]`, or nothing: then the agent names them later on."""
    if arguments:
        directory = arguments[0]
        held = {name: int(number) for name, number in (word.split("=") for word in arguments[1:])}
    else:
        received = worker_received()
        if received is None:
            return 0
        directory, held = received
    for descriptor in held.values():
        os.set_inheritable(descriptor, False)  # or the leader's own listener would find its port taken
    return keep(directory, held)


def keep(directory: str, held: dict[str, int]) -> int:
    os.chdir(directory)
    if not lock_taken():
        return ALREADY_KEPT
    if os.path.exists("started") or os.path.exists("exit.json"):  # noqa: PTH110 - no pathlib here
        return ALREADY_STARTED
    errors_redirect()
    spares_reserve()
    try:
        _supervisor(settings_read(), held).run()
    except FileExistsError:
        return ALREADY_STARTED
    return 0


def _supervisor(settings: dict[str, str], held: dict[str, int]) -> Keeper:
    if "container" not in settings:
        return Supervisor(settings, held)
    from agent.supervision.container import ContainerSupervisor  # what it needs takes 20 ms to load

    return ContainerSupervisor(settings, held)
