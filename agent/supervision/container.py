"""A Docker container's supervisor: it starts the container once, keeps its output and its limits, records its end.

The agent has created the container. Here its output is attached to before it starts, so that no byte is lost and none
is on the engine's disk unmasked. Its process is watched by itself (a pidfd), so an engine that is killed or restarted
is no end; only its exit code has to be asked for.
"""

import _signal  # type: ignore[import-not-found]  # as in sandbox_process.py
import os
import select
import time
from typing import Any

from agent.supervision.docker_engine import DockerEngine, EngineError, Output
from agent.supervision.keeper import SIGKILL, Keeper
from agent.supervision.processes import boottime, process_started
from agent.supervision.records import Record
from agent.supervision.sandbox_process import PIPE_BYTES
from agent.supervision.secrets import Secrets

_AGAIN_SECONDS = 0.5
_AWAY_SECONDS = 90.0
"""So long an engine may be away when something has to be asked of it, before that is given up."""
_DRAIN_SECONDS = 10.0
_CLOSED_SECONDS = 5.0
_NOTICED_SECONDS = 0.01
_NEVER = "0001"  # how the engine's times begin that have not come
_UNKNOWN = "The worker's container was removed, or its Docker engine stayed away: how it ended isn't known."
_LOST = "The Docker engine ended while it started the worker, and stayed away: whether it runs isn't known."
_GAP = b"\n[The Docker engine was restarted here; output of that moment may be missing.]\n"


class EngineAwayError(Exception):
    """Nobody has answered for `_AWAY_SECONDS`."""


class ContainerSupervisor(Keeper):
    def __init__(self, settings: dict[str, str], held: dict[str, int]) -> None:
        super().__init__(settings, held, Secrets(held.get("secrets")).masks)
        self._engine = DockerEngine(settings["engine"], settings["container"])
        self._pid = 0
        self._pid_fd = -1
        self._output: Output | None = None
        self._attach_due: float | None = None
        self._away = False  # the engine didn't answer when it was last asked
        self._ended = False
        self._ended_by_engine = False
        self._code_found: int | None = None
        self._out_of_memory = False
        self._state["container"] = settings["container"]

    def run(self) -> None:
        try:
            self._attach()
        except (EngineError, OSError) as error:
            self._not_run(f"its output can't be attached to: {error}")
        else:
            self._enter("prepared", ready_at=time.time(), prepare_seconds=self._prepare_seconds())
        try:
            super().run()
        except EngineAwayError:
            # Without an end on record the worker is lost and not gone: the agent removes the container before
            # anything that it has is used again.
            self._detach()
            self._enter(self._phase, lost=_LOST)

    def _prepare_seconds(self) -> float:
        """The agent's part is the longer one: since it wrote the settings."""
        return round(boottime() - float(self._settings["begun"]), 4)

    @property
    def _child(self) -> int:
        return self._pid

    def _over(self) -> bool:
        return self._ended

    # --- its output

    def _attach(self) -> None:
        self._output = self._engine.attach()
        self._attach_due = None
        self._handle(self._output.fileno(), self._on_output)

    def _on_output(self) -> None:
        data = self._output.read(PIPE_BYTES) if self._output is not None else b""
        if data is None:
            self._detach()
        else:
            self._take(data)

    def _detach(self) -> None:
        """It ends with the container, when the worker closes it, and with the engine: then there is more to come."""
        if self._output is not None:
            self._unwatch(self._output.fileno())
            self._output.close()
            self._output = None
        self._attach_due = boottime() + _AGAIN_SECONDS

    def _look_at_the_clock(self) -> None:
        super()._look_at_the_clock()
        if self._attach_due is not None and not self._ended and boottime() >= self._attach_due:
            self._attach_again()

    def _attach_again(self) -> None:
        self._attach_due = boottime() + (_AGAIN_SECONDS if self._away else _CLOSED_SECONDS)
        try:
            running = self._engine.look()["State"]["Running"]
            if running or not self._pid:
                self._attach()
        except EngineError as error:
            if not self._pid:
                self._not_run(f"the container is gone: {error}")
        except OSError:
            self._away = True
            self._attach_due = boottime() + _AGAIN_SECONDS
        else:
            if self._away and running:
                self._log.write(_GAP)
            self._away = self._away and not running

    def _wait_seconds(self) -> float | None:
        wait = super()._wait_seconds()
        if self._attach_due is None:
            return wait
        due = max(0.0, self._attach_due - boottime())
        return due if wait is None else min(wait, due)

    # --- its start

    def _let_go(self) -> None:
        """The one request of this container's life that starts it: never repeated, whatever comes of it."""
        try:
            self._engine.start()
        except EngineError as error:
            self._not_run(str(error))
        except OSError as error:
            self._start_unknown(error)
        else:
            self._find()
            self._release_drives()

    def _release_drives(self) -> None:
        directory = self._settings["drives"]
        if os.path.isdir(directory):  # noqa: PTH112 - no pathlib here, see the package
            from agent.supervision.held_drives import release_held

            release_held(directory)

    def _find(self) -> None:
        """The process of the container that has been started. Only when it is known may anything be said of it."""
        state = self._state_of()
        if state is not None and state["Running"]:
            self._follow(int(state["Pid"]))
        self._has_run()
        if self._pid == 0:
            self._over_with(self._state_of(ended=True))

    def _follow(self, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:  # it has ended
            return
        try:
            started = process_started(pid)
        except OSError:  # it has ended since
            os.close(descriptor)
            return
        state = self._state_of()
        if state is None or state["Pid"] != pid:  # it had ended, and another process has got its number
            os.close(descriptor)
            return
        self._pid, self._pid_fd = pid, descriptor
        self._state |= {"child": pid, "child_started": started}
        self._handle(descriptor, self._on_end)

    def _start_unknown(self, error: OSError) -> None:
        """The engine went away in the middle. Once it is back, the container tells whether it was started."""
        state = self._state_of()
        if state is not None and not state["StartedAt"].startswith(_NEVER):
            self._find()
        else:
            self._not_run(f"the Docker engine ended while it started the container ({error.strerror})")

    def _watch_execution(self) -> None:
        if not self._ended:  # else it was over before anything could be said of it
            self._enter("running")
            self._obey()  # a stop that came in between

    def _not_run(self, message: str) -> None:
        self._early = f"{message}\n".encode()
        self._ended = True

    def _abandon(self) -> None:
        self._ended = True

    # --- its end

    def _signal(self, signum: int) -> None:
        try:
            if self._pid_fd >= 0:
                _signal.pidfd_send_signal(self._pid_fd, signum)
        except ProcessLookupError:
            return
        except PermissionError:  # an agent that isn't root
            self._signal_by_engine(signum)

    def _signal_by_engine(self, signum: int) -> None:
        try:
            self._engine.signal(signum)
        except (EngineError, OSError):  # it has just ended, or the engine has: SIGKILL follows
            if signum == SIGKILL:
                self._kill_due = boottime() + _AGAIN_SECONDS

    def _on_end(self) -> None:
        self._unwatch(self._pid_fd)
        # An engine that comes back ends the containers that it finds. One that is still away hasn't done it.
        self._ended_by_engine = self._away and self._engine.answers()
        try:
            self._over_with(self._state_of())
        except EngineAwayError:
            self._over_with(None)

    def _over_with(self, state: dict[str, Any] | None) -> None:
        self._ended = True
        if state is not None:
            self._code_found = int(state["ExitCode"])
            self._out_of_memory = bool(state["OOMKilled"])

    def _state_of(self, *, ended: bool = False) -> dict[str, Any] | None:
        """As the engine knows it, once it has noticed what the process is doing. None: the container is known no more.

        `ended`: the process is known to have ended, without a descriptor of it. An engine that hasn't noticed
        says running, with 0 for the exit code that it will have.
        An engine that is away is waited for; raises EngineAwayError when that takes too long.
        """
        until = boottime() + _AWAY_SECONDS
        while boottime() < until:
            try:
                state: dict[str, Any] = self._engine.look()["State"]
            except EngineError:
                return None
            except OSError:
                time.sleep(_AGAIN_SECONDS)
                continue
            if not state["Running"] or not (ended or self._has_ended()):
                return state
            time.sleep(_NOTICED_SECONDS)
        raise EngineAwayError

    def _has_ended(self) -> bool:
        if self._pid_fd < 0:
            return False
        look = select.poll()
        look.register(self._pid_fd, select.POLLIN)
        return bool(look.poll(0))

    def _collect(self) -> None:
        until = boottime() + _DRAIN_SECONDS
        while self._output is not None and boottime() < until:
            data = self._output.read(PIPE_BYTES)
            if data is None:
                self._detach()
            elif data:
                self._take(data)
            else:
                time.sleep(0.005)

    def _exit_code(self) -> int | None:
        return self._code_found

    def _memory_ran_out(self) -> bool:
        return self._out_of_memory

    def _exit(self) -> Record:
        record = super()._exit()
        if not self._ran or self._reason is not None:
            return record
        if self._ended_by_engine:
            return record | {
                "kind": "lost",
                "message": "The Docker engine was restarted and ended the worker.",
            }
        if self._code_found is None:
            return record | {"kind": "lost", "message": _UNKNOWN}
        return record
