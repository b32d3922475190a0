"""The runtime bubblewrap: no daemon and no images, a worker sees this machine's own files, read-only."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from agent.config import Config
from agent.drives import Drive, drives_of
from agent.files import fifo_make, file_replace
from agent.inside import Sandboxed, run_inside, trial_run
from agent.journal import Entry, Facts
from agent.launching import Places, Supervisors, common_settings, handed_over, order_stop, settings_text
from agent.messages import explained
from agent.network_drives import mount_places
from agent.runtime import Lifeline, NotPrepared, Program, Ran
from agent.sandbox import Content, contents, environment, joined, sandbox_options
from agent.secrets import secret_files, secret_variables
from agent.users import user_find
from wire.assignments import Assignment

_PROGRAM_MODE = 0o444


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
        self._supervisors = Supervisors()

    def open(self) -> None:
        self._supervisors.open()

    def close(self) -> None:
        self._supervisors.close()

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
        running = self._supervisors.is_running(entry)
        facts = entry.facts()
        return replace(facts, alive=True) if running and facts.exit is None else facts

    def release(self, entry: Entry) -> None:
        self._supervisors.release(entry)

    def prepare(self, entry: Entry) -> None:
        assignment = entry.assignment
        if assignment is None:
            raise NotPrepared(entry.flaw)
        if not assignment.command:
            raise NotPrepared(
                "No command is given, and the runtime bubblewrap has no image with one. Set `command`."
            )
        files = contents(assignment, name=self._config.name, address=self._address())
        drives = drives_of(self._config, assignment, mount_places(self._config, assignment))
        self._write(entry.path, assignment, files, drives)
        file_replace(entry.path / "launch", self._launch_settings(entry, assignment, len(files)), sync=False)
        with handed_over(assignment, self._config.name, self._port_taken) as held:
            self._supervisors.launch(entry, held)

    def _write(
        self, directory: Path, assignment: Assignment, files: Sequence[Content], drives: Sequence[Drive]
    ) -> None:
        """Everything that the supervisor reads, less secrets."""
        (directory / "files").mkdir(mode=0o700, exist_ok=True)
        for number, (_, _, data) in enumerate(files):
            (directory / "files" / str(number)).write_bytes(data)
        options = sandbox_options(
            self._config, assignment, files=files, secrets=secret_files(assignment), drives=drives
        )
        (directory / "sandbox.args").write_bytes(joined(options))
        (directory / "command.args").write_bytes(joined([assignment.command or "", *assignment.args]))
        (directory / "mounts").write_text("".join(drive.line() for drive in drives))

    def _launch_settings(self, entry: Entry, assignment: Assignment, files: int) -> bytes:
        user = user_find(assignment.user)
        own: dict[str, object] = {
            "bwrap": self._bwrap,
            "files": files,
            "uid": user.uid if user else "",
            "gid": user.gid if user else "",
            "groups": ",".join(map(str, user.groups)) if user else "",
        }
        return settings_text({**common_settings(self._places, entry, assignment), **own})

    def start(self, entry: Entry) -> None:
        entry.order_write("start 0 0")

    def stop(self, entry: Entry) -> None:
        order_stop(entry, "stop")

    def fail(self, entry: Entry, kind: str) -> None:
        order_stop(entry, kind)

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

    def try_out(self, entry: Entry, program: Program, lifeline: Lifeline) -> Ran:
        assignment = entry.assignment
        if assignment is None:
            raise NotPrepared(entry.flaw)
        alike = program.beside(assignment)
        directory = entry.path / "trial"
        directory.mkdir(mode=0o700, exist_ok=True)
        fifo_make(directory / "gate")
        hosts = contents(alike, name=self._config.name, address=self._address())
        files = [*hosts, (program.path, _PROGRAM_MODE, program.source)]
        self._write(directory, alike, files, ())
        settings = self._launch_settings(entry, alike, len(files))
        file_replace(directory / "launch", settings, sync=False)
        return trial_run(directory, program.seconds, lifeline)

    def addresses(self, entry: Entry) -> tuple[str, ...]:  # noqa: ARG002 - the same for all
        return ("127.0.0.1", "::1", self._address())  # workers share the machine's network

    def clear(self, entry: Entry, facts: Facts) -> bool:
        left = entry.leftovers(facts, self._places.boot_id)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return not left and not entry.trying()

    def sweep(self, known: Collection[str]) -> None:
        """Nothing is left: sandboxes end with their supervisors, and these keep to their directories."""

    def lost_because(self, entry: Entry) -> str:
        if entry.flaw:
            return entry.flaw
        if entry.boot_id() != self._places.boot_id:
            return "The machine was restarted while the worker ran."
        return "The worker's supervisor was killed, and the worker with it."

    def explain(self, entry: Entry, message: str) -> str:
        return explained(message, entry.assignment, machine=self._config.name)
