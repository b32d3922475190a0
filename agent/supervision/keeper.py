"""The life of a worker, whatever runs it: started at most once, its stop carried out, its end recorded.

All that the agent and this process tell each other is files in the worker's directory (agent/journal.py lists
them); a byte in a FIFO only says "look again".

The order of a start is what "never twice" hangs on: the lock, the marker (exclusive and synced), and only then
what lets the command be executed (`Keeper._let_go`).
"""

import os
import select
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from agent.supervision.output import Log, Pokes
from agent.supervision.processes import boottime, ends_by_default, kills_for_memory
from agent.supervision.records import Record, Value, marker_create, read, record_write

SIGKILL = 9
SIGNALLED, _LAST_SIGNAL = 128, 64  # as a shell tells it: 128 + n stands for signal n
_LONGEST_WAIT = 30.0  # poll() doesn't count suspended time, the deadlines do
_STARTING_WAIT = 0.001
_CUT_OFF_CHECK = 5.0
_EARLY_BYTES = 1 << 16
_MESSAGE_BYTES = 1500
_FAILURES = (b"probe_failed", b"hung")
"""Orders to stop a worker that runs because it has failed: the word becomes the exit's kind."""


class Keeper(ABC):
    """What every runtime's supervisor does; how a command is let go, signalled and seen to end is the subclass's."""

    def __init__(self, settings: dict[str, str], held: dict[str, int], masks: list[bytes]) -> None:
        self._settings = settings
        self._held_port = held.get("port")
        self._begun = boottime()
        self._pokes = Pokes(settings["events"], settings["id"])
        self._log = Log(self._pokes, masks)
        self._control = os.open("control", os.O_RDWR | os.O_NONBLOCK)
        self._poll = select.poll()
        self._phase = "preparing"
        self._state: Record = {"supervisor": os.getpid()}
        self._early = b""  # output before the command runs can only be the runtime's own
        self._ran = False
        self._failure = "not_prepared"  # the exit's kind as long as nothing ran
        self._reason: str | None = None  # why it was stopped: the exit's kind then
        self._ended_in_place_of = 0  # the signal whose default effect process 1 was spared
        self._kill_due: float | None = None
        self._time_limit_due: float | None = None
        self._warning_due: float | None = None
        self._cut_off_check_due = 0.0
        self._memory_kills = 0
        self._handlers: dict[int, Callable[[], None]] = {}
        self._handle(self._control, self._on_control)

    # --- what a runtime does in its own way

    @property
    @abstractmethod
    def _child(self) -> int:
        """The command's process, 0 as long as there is none."""

    @abstractmethod
    def _over(self) -> bool:
        """Whether the whole process tree has ended."""

    @abstractmethod
    def _let_go(self) -> None:
        """Let the prepared command be executed; the phase is `starting` then."""

    @abstractmethod
    def _watch_execution(self) -> None:
        """Find out whether what was let go runs by now."""

    @abstractmethod
    def _abandon(self) -> None:
        """End what has been prepared; nothing ran."""

    @abstractmethod
    def _signal(self, signum: int) -> None:
        """To the command's process alone."""

    @abstractmethod
    def _collect(self) -> None:
        """After the end: take in what there still is to read."""

    @abstractmethod
    def _exit_code(self) -> int | None:
        """Of a command that ran; 128 + n for signal n. None: nobody knows it."""

    def _memory_ran_out(self) -> bool:
        return kills_for_memory() > self._memory_kills

    # --- what happens

    def _handle(self, descriptor: int, handler: Callable[[], None], events: int = select.POLLIN) -> None:
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, events)

    def _unwatch(self, descriptor: int) -> None:
        try:
            self._poll.unregister(descriptor)
        except KeyError:  # two events of one poll may lead here
            return

    def run(self) -> None:
        """Returns when the whole tree has ended and `exit.json` says how."""
        self._obey()
        while not self._over():
            wait = self._wait_seconds()
            for descriptor, _ in self._poll.poll(None if wait is None else wait * 1000 + 0.5):
                self._handlers[descriptor]()
            self._look_at_the_clock()
        self._finish()

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
            return _STARTING_WAIT
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
            self._abandon()
            return
        if self._held_port is not None:
            os.close(self._held_port)
        self._memory_kills = kills_for_memory()
        self._let_go()
        self._phase = "starting"
        self._state["started_at"] = time.time()
        if self._settings["time_limit"]:
            self._time_limit_due = boottime() + float(self._settings["time_limit"])
            if self._settings["warn"]:
                self._warning_due = self._time_limit_due - float(self._settings["warn"])

    def _has_run(self) -> None:
        self._ran = True
        if self._early:
            self._log.write(self._early)

    def _take(self, data: bytes) -> None:
        """Output, of the command or of what prepares it."""
        if self._ran:
            self._log.write(data)
        elif self._phase == "starting" or len(self._early) < _EARLY_BYTES:
            self._early += data

    def _warn(self) -> None:
        """Noted before it is sent: it is never sent twice. Process 1 survives it without a handler."""
        self._warning_due = None
        self._enter("running", warned_at=time.time())
        self._signal(int(self._settings["stop_signal"]))

    def _stop_by_itself(self, reason: str) -> None:
        self._stop(reason, int(self._settings["stop_signal"]), float(self._settings["stop_grace"]))

    def _stop(self, reason: str, signum: int, grace: float) -> None:
        if self._reason is not None or self._phase == "starting":
            return
        self._reason = reason
        if self._phase != "running":
            self._abandon()
            return
        self._kill_due = boottime() + grace
        self._enter("stopping", stopping_at=time.time(), reason=reason, stop_signal=signum, stop_grace=grace)
        if ends_by_default(self._child, signum):
            # Waiting would be for nothing: the kernel keeps such a signal from process 1.
            self._ended_in_place_of, self._kill_due = signum, None
            self._signal(SIGKILL)
        else:
            self._signal(signum)

    def _kill(self) -> None:
        self._kill_due = None
        self._signal(SIGKILL)
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
        self._collect()
        self._log.finish()
        record_write("exit.json", self._state | self._exit(), sync=True)
        self._pokes.send("log")
        self._pokes.send("state")

    def _exit(self) -> Record:
        code = self._code() if self._ran else None
        signum = (
            code - SIGNALLED if code is not None and SIGNALLED < code <= SIGNALLED + _LAST_SIGNAL else None
        )
        killed = self._ran and signum == SIGKILL and self._reason is None
        return {
            "kind": self._reason or ("exited" if self._ran else self._failure),
            "code": code,
            "signal": signum,
            "out_of_memory": killed and self._memory_ran_out(),
            "message": "" if self._ran else self._early[-_MESSAGE_BYTES:].decode(errors="replace"),
            "ended_at": time.time(),
        }

    def _code(self) -> int | None:
        code = self._exit_code()
        if code == SIGNALLED + SIGKILL and self._ended_in_place_of:
            return SIGNALLED + self._ended_in_place_of
        return code
