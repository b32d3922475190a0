"""The checks of one worker, before it is created: which one is due, and what they have come to.

First this machine's links alone; then, where the members meet, a check that all of them run at the same time, on the
console's order. What is known is also in `preflight.json` beside the worker's other files, so that a restarted agent
goes on from there. A program that was running died with the agent, and is run again.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.files import file_replace
from agent.journal import Entry
from agent.preflight.job import Answer, Step, answer_of, program_of
from agent.preflight.links import links_flaws, links_text
from agent.reconcile import Phase
from agent.runtime import Lifeline, NotPrepared, Runtime
from wire.agent_messages import AssignmentReport, Note
from wire.assignments import Assignment, Preflight
from wire.inventory import Inventory

log = logging.getLogger(__name__)

LINKS_NOTE, MEETING_NOTE = 80, 81
"""Numbers of other notes stand in agent/reports.py and agent/watch.py."""
_TEXT_LENGTH = 450


@dataclass(frozen=True)
class Surveyor:
    """What checks take from this machine."""

    machine: str
    simulated: bool
    inventory: Callable[[], Inventory]


class Flaw(BaseModel):
    """Why a worker may not start."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["not_prepared", "preflight_failed"]
    message: str
    machines: tuple[str, ...] = ()
    """At fault; empty: this one."""


class Checked(BaseModel):
    """What the checks of a worker have come to."""

    model_config = ConfigDict(frozen=True)

    links_at: float | None = None
    """When the machine's own links were found well."""
    passed: bool = False
    notes: tuple[Note, ...] = ()
    flaw: Flaw | None = None


def checked_read(path: Path) -> Checked:
    try:
        return Checked.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return Checked()


class Checking:
    """Safe to use from several threads. `wake` is called when there is something new."""

    def __init__(self, entry: Entry, runtime: Runtime, surveyor: Surveyor, wake: Callable[[], None]) -> None:
        self._entry = entry
        self._runtime = runtime
        self._surveyor = surveyor
        self._wake = wake
        self._path = entry.path / "preflight.json"
        self._known = checked_read(self._path)
        self._lifeline: Lifeline | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def known(self) -> Checked:
        return self._known

    def told(self, report: AssignmentReport, preflight: Preflight | None, wanted: Phase) -> AssignmentReport:
        """The report, with what is known here."""
        known = self._known
        if preflight is None:
            return report
        return report.model_copy(
            update={
                "checkable_at": known.links_at if preflight.meets else None,
                "detail": report.detail
                or (self._detail(preflight, wanted) if report.state == "preparing" else ""),
                "notes": (*known.notes, *report.notes),
            }
        )

    def _detail(self, preflight: Preflight, wanted: Phase) -> str:
        if self._known.passed:
            return ""
        if self._known.links_at is None:
            return "Checking the links"
        what = "all-reduce" if preflight.kind == "allreduce" else "leader's address"
        return (
            f"Checking the {what} with the others"
            if wanted != "prepare"
            else "Waiting for the others to check"
        )

    def passed(self, assignment: Assignment, wanted: Phase) -> bool:
        """Begins what is due; True when nothing keeps the worker from being created."""
        preflight = assignment.preflight
        if preflight is None or self._known.passed:
            return True
        if self.busy or self._known.flaw or self._closed:
            return False
        if self._known.links_at is None:
            self._check_links(assignment, preflight)
        elif wanted != "prepare":
            self._begin(assignment, preflight, "meet")
        return self._known.passed

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def end(self) -> bool:
        """Give the checks up. True when nothing of them runs any more."""
        self._closed = True
        lifeline = self._lifeline
        if lifeline is not None and self.busy:
            lifeline.cut()
        return not self.busy

    # --- the machine's own links

    def _check_links(self, assignment: Assignment, preflight: Preflight) -> None:
        flaws = links_flaws(assignment, preflight, self._surveyor.inventory())
        if flaws:
            self._fail("preflight_failed", "; ".join(flaws), (), preflight)
        elif self._surveyor.simulated and preflight.kind == "links":
            self._links_well(assignment, preflight, "")
        else:
            self._begin(assignment, preflight, "look")

    def _links_well(self, assignment: Assignment, preflight: Preflight, more: str) -> None:
        found = links_text(assignment, preflight) + (f"; {more}" if more else "")
        said = f"Links checked{' (simulated)' if self._surveyor.simulated else ''}: {found}"
        self._keep(
            self._known.model_copy(
                update={
                    "links_at": time.time(),
                    "passed": not preflight.meets,
                    "notes": (_note(LINKS_NOTE, said),),
                }
            )
        )

    def _met_well(self, preflight: Preflight, text: str) -> None:
        lead = "All-reduce checked" if preflight.kind == "allreduce" else "Leader's address checked"
        notes = (*self._known.notes, _note(MEETING_NOTE, f"{lead}: {text}"))
        self._keep(self._known.model_copy(update={"passed": True, "notes": notes}))

    # --- programs, each in a thread of its own

    def _begin(self, assignment: Assignment, preflight: Preflight, step: Step) -> None:
        self._lifeline = lifeline = Lifeline()
        self._thread = threading.Thread(
            target=self._run,
            args=(assignment, preflight, step, lifeline),
            name=f"preflight-{self._entry.id}",
            daemon=True,
        )
        self._thread.start()

    def _run(self, assignment: Assignment, preflight: Preflight, step: Step, lifeline: Lifeline) -> None:
        try:
            with lifeline:
                answer = self._ask(assignment, preflight, step, lifeline)
            if self._closed:
                return
            if not answer.ok:
                self._fail("preflight_failed", answer.text, tuple(answer.machines), preflight)
            elif step == "look":
                self._links_well(assignment, preflight, answer.text)
            else:
                self._met_well(preflight, answer.text)
        except NotPrepared as error:
            self._fail("not_prepared", str(error), (), preflight)
        except OSError as error:
            self._fail("not_prepared", f"The check can't be run: {error.strerror or error}", (), preflight)
        except Exception:
            # One worker's trouble must not hang it: without a verdict it would be checked again and again.
            log.exception("assignment %s: a check ended unexpectedly", self._entry.id)
            self._fail("preflight_failed", "it ended unexpectedly; the agent's log says how", (), preflight)
        finally:
            self._wake()

    def _ask(self, assignment: Assignment, preflight: Preflight, step: Step, lifeline: Lifeline) -> Answer:
        program = program_of(assignment, preflight, step, simulated=self._surveyor.simulated)
        return answer_of(self._runtime.try_out(self._entry, program, lifeline), self._surveyor.machine)

    def _fail(self, kind: str, message: str, machines: tuple[str, ...], preflight: Preflight) -> None:
        if kind == "preflight_failed":
            name = (
                "all-reduce check" if self._known.links_at and preflight.kind == "allreduce" else "link check"
            )
            message = f"The {name} failed: {message}"
        flaw = Flaw.model_validate({"kind": kind, "message": message[:_TEXT_LENGTH], "machines": machines})
        self._keep(self._known.model_copy(update={"flaw": flaw}))

    def _keep(self, known: Checked) -> None:
        """On the disk, too, unsynced: after a power cut nothing of the gang's start is left anyway."""
        self._known = known
        try:
            file_replace(self._path, known.model_dump_json().encode(), sync=False)
        except OSError as error:  # a full disk: it is known as long as this agent lives
            log.warning("assignment %s: preflight.json can't be written: %s", self._entry.id, error.strerror)


def _note(number: int, text: str) -> Note:
    return Note(number=number, at=time.time(), text=text[:_TEXT_LENGTH])
