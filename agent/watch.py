"""Watching a worker that runs: its probes and its silence, and what they have come to.

What is known is also in `watch.json` beside the worker's other files, so that a restarted agent neither waits again
for a worker that has started, nor tells anything twice, nor forgets that one has failed. A verdict is written before
the worker is stopped for it.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.files import file_replace
from agent.journal import Entry, Facts
from agent.looks import Look, look
from agent.probes import Name, Probing
from agent.runtime import Lifeline, Ran, Runtime
from agent.secrets import masks
from agent.silence import GpusBusy, Silence
from agent.supervision.masking import masked
from wire.agent_messages import Note
from wire.assignments import Assignment, Probe

log = logging.getLogger(__name__)

FIRST_NOTE = 10
"""Smaller numbers are the supervisor's (agent/reports.py)."""
MOST_NOTES = 40
_MESSAGE_LENGTH = 400


class Verdict(BaseModel):
    """Why a worker that runs has failed; `kind` becomes its exit's."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["probe_failed", "hung"]
    message: str


class Watched(BaseModel):
    """What watching a worker has come to. Never a secret's value in it."""

    model_config = ConfigDict(frozen=True)

    started: bool = False
    """Its startup probe has succeeded."""
    ready: bool | None = None
    """By its readiness probe; None: not known yet."""
    unready: str = ""
    notes: tuple[Note, ...] = ()
    verdict: Verdict | None = None

    def but(self, **changes: Any) -> "Watched":
        return self.model_copy(update=changes)

    def noted(self, text: str) -> "Watched":
        """With one more line for the worker's History, as long as there is room."""
        number = len(self.notes)
        if number >= MOST_NOTES:
            return self
        last = " (Later changes are not listed.)" if number == MOST_NOTES - 1 else ""
        note = Note(number=FIRST_NOTE + number, at=time.time(), text=text + last)
        return self.but(notes=(*self.notes, note))


def watched_read(path: Path) -> Watched:
    """What an earlier agent knew; nothing when it can't be read."""
    try:
        return Watched.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return Watched()


def watched_detail(assignment: Assignment | None, known: Watched) -> str:
    """What a worker that runs is doing, by its probes; empty without any that tell."""
    if assignment is None or known.verdict is not None:
        return ""
    if assignment.probes.startup and not known.started:
        return "Starting up"
    if assignment.probes.readiness is None:
        return ""
    if known.ready:
        return "Ready"
    return f"Not ready: {known.unready}" if known.unready else "Not ready yet"


class Watch:
    """Of one worker. `wake` is called when there is something new; from several threads, like everything here."""

    def __init__(self, entry: Entry, runtime: Runtime, gpus_busy: GpusBusy, wake: Callable[[], None]) -> None:
        self._runtime = runtime
        self._gpus_busy = gpus_busy
        self._wake = wake
        self._path = entry.path / "watch.json"
        self._lock = threading.Lock()
        self._known = watched_read(self._path)
        self._probing: Probing | None = None
        self._silence: Silence | None = None
        self._entry, self._facts = entry, Facts(alive=False, marker=False)

    @property
    def known(self) -> Watched:
        return self._known

    def follow(self, entry: Entry, facts: Facts, *, running: bool) -> None:
        """To be called often while the worker is there; `running`: it runs, and nobody wants it stopped."""
        self._entry, self._facts = entry, facts
        if entry.assignment is None or not running or self._known.verdict:
            self.close()
            return
        if self._probing is None and entry.assignment.probes:
            self._probing = Probing(entry.assignment.probes, self._look_at, self)
            self._probing.begin(started=self._known.started)
        self._listen(entry, entry.assignment)

    def close(self) -> None:
        if self._probing is not None:
            self._probing.close()

    def _listen(self, entry: Entry, assignment: Assignment) -> None:
        if assignment.hang_after_seconds is None:
            return
        if self._silence is None:
            self._silence = Silence(assignment.hang_after_seconds, assignment.gpu_uuids, self._gpus_busy)
        message = self._silence.look(entry.log_size())
        if message:
            self._judge(Verdict(kind="hung", message=message))

    # --- what probes do and find (in their threads)

    def _look_at(self, probe: Probe, lifeline: Lifeline) -> Look:
        entry, facts = self._entry, self._facts
        if entry.assignment is None or (probe.exec and entry.assignment.withheld()):
            return Look(None)  # after a restart the console is asked for the secrets again

        def run(command: Sequence[str], seconds: float) -> Ran:
            ran = self._runtime.execute(entry, facts, command, seconds, lifeline)
            # Before anything is cut off: half of a secret would not be known as one.
            output = masked(ran.output.encode(), masks(entry.assignment))
            return replace(ran, output=output.decode(errors="replace"))

        return look(probe, self._runtime.addresses(self._entry), run)

    def passed(self, name: Name) -> bool:
        if name == "startup":
            self._change(lambda known: known.noted("Startup probe succeeded").but(started=True))
            if self._probing is not None:
                self._probing.go_on()
            return False
        if name == "readiness" and self._known.ready is not True:
            self._change(lambda known: known.noted("Ready").but(ready=True, unready=""))
        return True

    def failed(self, name: Name, times: int, message: str) -> bool:
        text = f"{name} probe failed {times} time{'' if times == 1 else 's'}: {message}"[:_MESSAGE_LENGTH]
        if name != "readiness":
            self._judge(Verdict(kind="probe_failed", message=text))
            return False
        if self._known.ready is not False:
            self._change(lambda known: known.noted(f"Not ready: {text}").but(ready=False, unready=text))
        return True

    def _judge(self, verdict: Verdict) -> None:
        self._change(lambda known: known if known.verdict else known.but(verdict=verdict))

    def _change(self, change: Callable[[Watched], Watched]) -> None:
        with self._lock:
            self._known = known = change(self._known)
            try:
                file_replace(self._path, known.model_dump_json().encode())
            except OSError as error:  # a full disk: it is known as long as this agent lives
                log.warning("assignment %s: watch.json can't be written: %s", self._entry.id, error.strerror)
        self._wake()
