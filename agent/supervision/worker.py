"""The life of one bubblewrap worker: started at most once, its stop carried out, its end recorded.

All that the agent and this process tell each other is files in the worker's directory (agent/journal.py lists
them); a byte in a FIFO only says "look again".

The order of a start is what "never twice" hangs on: the lock, the marker (exclusive and synced), and only then
the byte in the gate that lets bubblewrap execute the command.
"""

import os
import select
import time

from agent.supervision.mounts import mounts_wrong
from agent.supervision.output import Log, Pokes
from agent.supervision.processes import (
    boottime,
    command_line,
    ends_by_default,
    executable,
    is_exiting,
    kills_for_memory,
)
from agent.supervision.records import (
    Record,
    Value,
    errors_redirect,
    lock_taken,
    marker_create,
    read,
    record_write,
    settings_read,
    spares_reserve,
)
from agent.supervision.sandbox_process import PIPE_BYTES, SandboxProcess
from agent.supervision.secrets import Secrets
from agent.supervision.waiting import worker_received

ALREADY_KEPT, ALREADY_STARTED = 75, 76  # exit codes of this process
_SIGKILL = 9
_SIGNALLED, _LAST_SIGNAL = 128, 64  # as a shell tells it: 128 + n stands for signal n
_LONGEST_WAIT = 30.0  # poll() doesn't count suspended time, the deadlines do
_CUT_OFF_CHECK = 5.0
_EARLY_BYTES = 1 << 16
_MESSAGE_BYTES = 1500
_FAILURES = (b"probe_failed", b"hung")
"""Orders to stop a worker that runs because it has failed: the word becomes the exit's kind."""


class Supervisor:
    def __init__(self, settings: dict[str, str], held: dict[str, int]) -> None:
        self._settings = settings
        self._held_port = held.get("port")
        self._begun = boottime()
        self._pokes = Pokes(settings["events"], settings["id"])
        secrets = Secrets(held.get("secrets"))
        self._log = Log(self._pokes, secrets.masks)
        self._control = os.open("control", os.O_RDWR | os.O_NONBLOCK)
        self._sandbox = SandboxProcess(settings, secrets)
        self._poll = select.poll()
        self._phase = "preparing"
        self._state: Record = {"supervisor": os.getpid(), "bwrap": self._sandbox.pid}
        self._early = b""  # output before the command runs can only be bubblewrap's own
        self._ran = False
        self._failure = "not_prepared"  # the exit's kind as long as nothing ran
        self._reason: str | None = None  # why it was stopped: the exit's kind then
        self._ended_in_place_of = 0  # the signal whose default effect process 1 was spared
        self._kill_due: float | None = None
        self._time_limit_due: float | None = None
        self._warning_due: float | None = None
        self._cut_off_check_due = 0.0
        self._memory_kills = 0
        self._child_gone = False
        self._wait_status: int | None = None

    def run(self) -> None:
        """Returns when the whole tree has ended and `exit.json` says how."""
        sandbox = self._sandbox
        handlers = {
            self._control: self._on_control,
            sandbox.status: self._on_status,
            sandbox.output: self._on_output,
            sandbox.ready: self._on_ready,
            sandbox.fd: self._on_bubblewrap_end,
        }
        for descriptor in handlers:
            self._poll.register(descriptor, 0 if descriptor == sandbox.ready else select.POLLIN)
        self._obey()
        while self._wait_status is None or (sandbox.child and not self._child_gone):
            wait = self._wait_seconds()
            for descriptor, _ in self._poll.poll(None if wait is None else wait * 1000 + 0.5):
                handlers.get(descriptor, self._on_child_end)()
            self._look_at_the_clock()
        self._finish()

    def _unwatch(self, descriptor: int) -> None:
        try:
            self._poll.unregister(descriptor)
        except KeyError:  # two events of one poll may lead here
            return

    # --- what happens

    def _on_status(self) -> None:
        known = self._sandbox.child
        if not self._sandbox.status_read():
            self._unwatch(self._sandbox.status)
        if self._sandbox.child and not known:
            self._state |= {"child": self._sandbox.child, "child_started": self._sandbox.child_started}
            self._poll.register(self._sandbox.child_fd, select.POLLIN)

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
            self._sandbox.signal(_SIGKILL)
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
        elif self._ran:
            self._log.write(data)
        elif self._phase == "starting" or len(self._early) < _EARLY_BYTES:
            self._early += data

    def _on_bubblewrap_end(self) -> None:
        self._unwatch(self._sandbox.fd)
        self._wait_status = os.waitpid(self._sandbox.pid, 0)[1]
        self._on_status()
        if not self._sandbox.child and self._sandbox.orphan_find():
            self._poll.register(self._sandbox.child_fd, select.POLLIN)
        if self._sandbox.child and not self._child_gone:
            # Killed early on, it leaves a process 1 that waits for it, without its own death being noticed.
            self._sandbox.signal(_SIGKILL)

    def _on_child_end(self) -> None:
        self._unwatch(self._sandbox.child_fd)
        self._child_gone = True

    def _on_control(self) -> None:
        os.read(self._control, 4096)
        self._obey()

    def _look_at_the_clock(self) -> None:
        if self._phase == "starting":
            self._watch_execution()
        now = boottime()
        if self._phase == "running" and self._warning_due and now >= self._warning_due:
            self._warn()
        if self._phase == "running" and self._time_limit_due and now >= self._time_limit_due:
            self._stop_by_itself("time_limit")
        if self._phase == "running" and self._settings["cut_off"] and now >= self._cut_off_check_due:
            self._check_cut_off(now)
        if self._kill_due is not None and now >= self._kill_due:
            self._kill()

    def _wait_seconds(self) -> float | None:
        if self._phase == "starting":
            return 0.001
        dues = [self._kill_due]
        if self._phase == "running":
            dues += [
                self._time_limit_due,
                self._warning_due,
                self._cut_off_check_due if self._settings["cut_off"] else None,
            ]
        waits = [due - boottime() for due in dues if due is not None]
        poke_wait = self._log.poke_when_due()
        if poke_wait is not None:
            waits.append(poke_wait)
        return min(_LONGEST_WAIT, max(0.0, min(waits))) if waits else None

    # --- what is ordered

    def _obey(self) -> None:
        try:
            phase, signum, grace = read("order").split()
        except (OSError, ValueError):
            return
        if phase == b"stop":
            self._stop("stopped", int(signum), float(grace))
        elif phase in _FAILURES and self._phase == "running":
            self._stop(phase.decode(), int(signum), float(grace))
        elif phase == b"start" and self._phase == "prepared" and self._reason is None:
            self._start()

    def _start(self) -> None:
        self._failure = "not_started"
        try:
            marker_create()
        except FileExistsError:
            raise
        except OSError as error:
            self._early += f"the start marker could not be written: {error.strerror}\n".encode()
            self._sandbox.signal(_SIGKILL)
            return
        if self._held_port is not None:
            os.close(self._held_port)
        self._memory_kills = kills_for_memory()
        self._waiting_line = command_line(self._sandbox.child)
        self._waiting_program = executable(self._sandbox.child)
        self._sandbox.release()
        self._phase = "starting"
        self._state["started_at"] = time.time()
        if self._settings["time_limit"]:
            self._time_limit_due = boottime() + float(self._settings["time_limit"])
            if self._settings["warn"]:
                self._warning_due = self._time_limit_due - float(self._settings["warn"])

    def _watch_execution(self) -> None:
        """A successful exec changes the child's command line, a failed one ends bubblewrap.

        A program can make its command line look like any other, but not its executable.
        """
        line, program = command_line(self._sandbox.child), executable(self._sandbox.child)
        if line not in (b"", self._waiting_line) or program not in ("", self._waiting_program):
            self._has_run()
            self._enter("running")
            self._obey()  # a stop that came in between

    def _has_run(self) -> None:
        self._ran = True
        if self._early:
            self._log.write(self._early)

    def _warn(self) -> None:
        """Noted before it is sent: it is never sent twice. Process 1 survives it without a handler."""
        self._warning_due = None
        self._enter("running", warned_at=time.time())
        self._sandbox.signal(int(self._settings["stop_signal"]))

    def _stop_by_itself(self, reason: str) -> None:
        self._stop(reason, int(self._settings["stop_signal"]), float(self._settings["stop_grace"]))

    def _stop(self, reason: str, signum: int, grace: float) -> None:
        if self._reason is not None or self._phase == "starting":
            return
        self._reason = reason
        if self._phase != "running":
            self._sandbox.signal(_SIGKILL)
            return
        self._kill_due = boottime() + grace
        self._enter("stopping", stopping_at=time.time(), reason=reason, stop_signal=signum, stop_grace=grace)
        if ends_by_default(self._sandbox.child, signum):
            # Waiting would be for nothing: the kernel keeps such a signal from process 1.
            self._ended_in_place_of, self._kill_due = signum, None
            self._sandbox.signal(_SIGKILL)
        else:
            self._sandbox.signal(signum)

    def _kill(self) -> None:
        self._kill_due = None
        self._sandbox.signal(_SIGKILL)
        self._enter("stopping", killed_at=time.time())

    def _check_cut_off(self, now: float) -> None:
        self._cut_off_check_due = now + _CUT_OFF_CHECK
        try:
            heard = float(read(self._settings["heard"]))
        except (OSError, ValueError):
            return
        limit = float(self._settings["cut_off"])
        if now - heard >= limit:
            self._stop_by_itself("cut_off")
        else:
            self._cut_off_check_due = min(self._cut_off_check_due, heard + limit)

    def _enter(self, phase: str, **facts: Value) -> None:
        self._phase = phase
        self._state |= {"phase": phase, **facts}
        try:
            record_write("state.json", self._state)
        except OSError:  # a full disk; the marker and the exit, which matter, have their room
            return
        finally:
            self._pokes.send("state")

    # --- the end

    def _finish(self) -> None:
        while self._sandbox.status_read():
            pass
        if not self._ran and self._sandbox.code is not None:  # it ended before its start was seen
            self._has_run()
        self._ran = self._ran or self._sandbox.code is not None
        self._drain()
        self._log.finish()
        record_write("exit.json", self._state | self._exit(), sync=True)
        self._pokes.send("log")
        self._pokes.send("state")

    def _drain(self) -> None:
        while True:
            try:
                data = os.read(self._sandbox.output, PIPE_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            if self._ran:
                self._log.write(data)
            else:
                self._early += data

    def _exit(self) -> Record:
        code = self._code() if self._ran else None
        signum = (
            code - _SIGNALLED if code is not None and _SIGNALLED < code <= _SIGNALLED + _LAST_SIGNAL else None
        )
        killed = self._ran and signum == _SIGKILL and self._reason is None
        return {
            "kind": self._reason or ("exited" if self._ran else self._failure),
            "code": code,
            "signal": signum,
            "out_of_memory": killed and kills_for_memory() > self._memory_kills,
            "message": "" if self._ran else self._early[-_MESSAGE_BYTES:].decode(errors="replace"),
            "ended_at": time.time(),
        }

    def _code(self) -> int:
        code = self._sandbox.code
        if code is None:  # bubblewrap itself was killed, and the command with it
            code = _SIGNALLED + os.WTERMSIG(self._wait_status or _SIGKILL)
        if code == _SIGNALLED + _SIGKILL and self._ended_in_place_of:
            return _SIGNALLED + self._ended_in_place_of
        return code


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
        Supervisor(settings_read(), held).run()
    except FileExistsError:
        return ALREADY_STARTED
    return 0
