"""The runtime bubblewrap: no daemon and no images, a worker sees this machine's own files, read-only."""

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from agent.config import Config
from agent.drives import drives_find
from agent.files import file_replace
from agent.inside import Sandboxed, run_inside
from agent.journal import Entry, Facts
from agent.messages import explained
from agent.ports import PortTakenError, port_hold
from agent.runtime import Lifeline, NotPrepared, Ran
from agent.sandbox import Content, contents, environment, joined, sandbox_options
from agent.secrets import handover, secret_files, secret_variables
from agent.spare import Spare, supervisor_start
from agent.users import user_find
from wire.agent_messages import Assignment

_DEFAULT_GRACE_SECONDS = 30


@dataclass(frozen=True)
class Places:
    """What supervisors and the agent agree on."""

    events: Path
    heard: Path
    boot_id: str


class Bubblewrap:
    name = "bubblewrap"

    def __init__(
        self,
        config: Config,
        places: Places,
        address: Callable[[], str],
        port_taken: Callable[[int], None],
    ) -> None:
        self._config = config
        self._places = places
        self._address = address
        self._port_taken = port_taken
        self._bwrap = shutil.which("bwrap") or "/usr/bin/bwrap"
        self._supervisors: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._spare = Spare()

    def open(self) -> None:
        self._spare.fill()

    def close(self) -> None:
        self._spare.close()

    def version(self) -> str:
        try:
            done = subprocess.run([self._bwrap, "--version"], capture_output=True, check=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            return "bubblewrap is missing"
        return done.stdout.decode().strip()

    def limits(self) -> tuple[str, ...]:
        said = (
            "bubblewrap limits neither the memory nor the processor time of a worker.",
            "Images are ignored: workers see this machine's own files, read-only.",
        )
        if os.geteuid() == 0:
            return (*said, "The agent runs as root, and so do its workers: they can read root's files.")
        return said

    def facts(self, entry: Entry) -> Facts:
        # The process before the directory: what an ended supervisor has written is then all there.
        running = self._is_running(entry)
        facts = entry.facts()
        return replace(facts, alive=True) if running and facts.exit is None else facts

    def _is_running(self, entry: Entry) -> bool:
        """A supervisor that this agent started; it may not have locked yet. Reaps it when it has ended."""
        with self._lock:
            supervisor = self._supervisors.get(entry.id)
            if supervisor is None:
                return False
            if supervisor.poll() is None:
                return True
            del self._supervisors[entry.id]
            return False

    def release(self, entry: Entry) -> None:
        with self._lock:
            supervisor = self._supervisors.pop(entry.id, None)
        if supervisor is not None:
            supervisor.wait()

    def prepare(self, entry: Entry) -> None:
        assignment = entry.assignment
        if assignment is None:
            raise NotPrepared(entry.flaw)
        if not assignment.command:
            raise NotPrepared(
                "No command is given, and the runtime bubblewrap has no image with one. Set `command`."
            )
        files = contents(assignment, name=self._config.name, address=self._address())
        self._write(entry, assignment, files)
        file_replace(entry.path / "launch", self._launch_settings(entry, assignment, len(files)), sync=False)
        with ExitStack() as stack:
            held: dict[str, int] = {}
            port = self._port(assignment)
            if port:
                held["port"] = stack.enter_context(port).fileno()
            secrets = handover(assignment)
            if secrets is not None:
                stack.callback(os.close, secrets)
                held["secrets"] = secrets
            self._launch(entry, held)

    def _write(self, entry: Entry, assignment: Assignment, files: Sequence[Content]) -> None:
        """Everything that the supervisor reads, less secrets."""
        drives = drives_find(self._config, assignment.mounts)
        (entry.path / "files").mkdir(mode=0o700, exist_ok=True)
        for number, (_, _, data) in enumerate(files):
            (entry.path / "files" / str(number)).write_bytes(data)
        options = sandbox_options(
            self._config, assignment, files=files, secrets=secret_files(assignment), drives=drives
        )
        (entry.path / "sandbox.args").write_bytes(joined(options))
        (entry.path / "command.args").write_bytes(joined([assignment.command or "", *assignment.args]))
        (entry.path / "mounts").write_text("".join(drive.line() for drive in drives))

    def _port(self, assignment: Assignment) -> socket.socket | None:
        if assignment.rendezvous_port is None:
            return None
        try:
            return port_hold(assignment.rendezvous_port)
        except PortTakenError:
            self._port_taken(assignment.rendezvous_port)
            raise NotPrepared(f"port {assignment.rendezvous_port} is in use on {self._config.name}") from None

    def _launch_settings(self, entry: Entry, assignment: Assignment, files: int) -> bytes:
        user, stop_signal = user_find(assignment.user), signal_number(assignment.stop_signal)
        # As a warning SIGKILL would end the worker.
        warning = None if stop_signal == signal.SIGKILL else assignment.warn_signal_seconds
        settings: dict[str, object] = {
            "id": entry.id,
            "boot": self._places.boot_id,
            "events": self._places.events,
            "heard": self._places.heard,
            "bwrap": self._bwrap,
            "files": files,
            "uid": user.uid if user else "",
            "gid": user.gid if user else "",
            "groups": ",".join(map(str, user.groups)) if user else "",
            "stop_signal": stop_signal,
            "stop_grace": assignment.stop_grace_seconds,
            "time_limit": assignment.time_limit_seconds or "",
            "warn": warning or "",
            "cut_off": assignment.stop_when_cut_off_seconds or "",
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items()).encode()

    def _launch(self, entry: Entry, held: Mapping[str, int]) -> None:
        supervisor = self._spare.send(entry.path, held) or supervisor_start(entry.path, held)
        with self._lock:
            self._supervisors[entry.id] = supervisor

    def start(self, entry: Entry) -> None:
        entry.order_write("start 0 0")

    def stop(self, entry: Entry) -> None:
        _stop(entry, "stop")

    def fail(self, entry: Entry, kind: str) -> None:
        _stop(entry, kind)

    def execute(
        self, entry: Entry, facts: Facts, command: Sequence[str], seconds: float, lifeline: Lifeline
    ) -> Ran:
        assignment = entry.assignment
        if assignment is None:
            raise NotPrepared(entry.flaw)
        user = user_find(assignment.user)
        directory = assignment.working_dir or "/"
        sandboxed = Sandboxed(
            pid=int(facts.state.get("child") or 0),
            started=int(facts.state.get("child_started") or 0),
            environment={
                **environment(self._config, assignment),
                **secret_variables(assignment),
                "PWD": directory,
            },
            directory=directory,
            user=(user.uid, user.gid, user.groups) if user else None,
        )
        return run_inside(sandboxed, command, seconds, lifeline)

    def addresses(self) -> tuple[str, ...]:
        return ("127.0.0.1", "::1", self._address())  # workers share the machine's network

    def clear(self, entry: Entry, facts: Facts) -> bool:
        left = entry.leftovers(facts, self._places.boot_id)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return not left

    def lost_because(self, entry: Entry) -> str:
        if entry.flaw:
            return entry.flaw
        if entry.boot_id() != self._places.boot_id:
            return "The machine was restarted while the worker ran."
        return "The worker's supervisor was killed, and the worker with it."

    def explain(self, entry: Entry, message: str) -> str:
        return explained(message, entry.assignment, machine=self._config.name)


def _stop(entry: Entry, word: str) -> None:
    assignment = entry.assignment
    signum = signal_number(assignment.stop_signal) if assignment else int(signal.SIGTERM)
    grace = assignment.stop_grace_seconds if assignment else _DEFAULT_GRACE_SECONDS
    entry.order_write(f"{word} {signum} {grace}")


def signal_number(name: str) -> int:
    """ "SIGTERM", "TERM" or "15". Raises NotPrepared."""
    try:
        if name.isdecimal():
            return int(signal.Signals(int(name)))
        return int(signal.Signals[name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"])
    except (KeyError, ValueError):
        raise NotPrepared(
            f"{name} is no signal. Set `stop_signal` to one such as SIGTERM or SIGINT."
        ) from None
