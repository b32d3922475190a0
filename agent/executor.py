"""One thread for each assignment: takes it from step to step, and says so."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agent.causes import Cause, likely_cause
from agent.journal import Entry, Facts
from agent.network_drives import Mounting, NetworkDrives
from agent.preflight.checking import Checking, Surveyor
from agent.reconcile import Phase, Step, higher, next_step
from agent.reports import report_of
from agent.runtime import NotPrepared, Runtime
from agent.silence import GpusBusy
from agent.watch import Watch
from wire.agent_messages import AssignmentReport, Exit
from wire.assignments import Assignment

log = logging.getLogger(__name__)

_SETTLED_LOOK = 1.0
"""Supervisors poke at every change; this look finds those that were killed before they could."""
_UNSETTLED_LOOK = 0.05


class Executor(threading.Thread):
    """`changed` is called after every change of `report`, from this thread."""

    def __init__(
        self,
        entry: Entry,
        runtime: Runtime,
        wanted: Phase,
        *,
        gpus_busy: GpusBusy,
        surveyor: Surveyor,
        drives: NetworkDrives,
        changed: Callable[[], None],
        settle: Callable[[], None],
    ) -> None:
        super().__init__(name=f"executor-{entry.id}", daemon=True)
        self.entry = entry
        self._runtime = runtime
        self._wanted: Phase = "stop" if entry.flaw else wanted
        self._changed = changed
        self._settle = settle
        self._launches = 0
        self._wake = threading.Event()
        self._closed = False
        self._released = False
        self._watch = Watch(entry, runtime, gpus_busy, self.wake)
        self._checking = Checking(entry, runtime, surveyor, self.wake)
        self._drives = drives
        self._mounting = Mounting(entry, drives, self.wake)
        self._cause: Cause | None = None
        self.report = self._first_report()

    @property
    def wanted(self) -> Phase:
        return self._wanted

    @property
    def gone(self) -> bool:
        return self.report.gone

    @property
    def released(self) -> bool:
        """Nothing here needs the entry's directory any more. Comes after `gone`, which the console may know by then."""
        return self._released

    def raise_to(self, phase: Phase) -> None:
        self._wanted = higher(self._wanted, phase)
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    def complete(self, assignment: Assignment) -> None:
        """The console has sent the assignment again, with the secrets that no disk has kept."""
        if self._withheld() and not assignment.withheld():
            self.entry = replace(self.entry, assignment=assignment)
            self._wake.set()

    def close(self) -> None:
        """End the thread, not the worker."""
        self._closed = True
        self._watch.close()
        self._checking.end()
        self._mounting.end()
        self._wake.set()

    def run(self) -> None:
        while not self._closed:
            self._wake.clear()
            try:
                settled = self._advance()
            except Exception:
                # One assignment's trouble must reach neither the agent nor its other assignments.
                log.exception("assignment %s: unexpected error, tried again", self.entry.id)
                settled = True
            if self.gone:
                self._watch.close()
                self._runtime.release(self.entry)
                self._drives.unmount(self.entry.id)
                self._released = True
                self._settle()
                return
            self._wake.wait(_SETTLED_LOOK if settled else _UNSETTLED_LOOK)

    def _advance(self) -> bool:
        """One step and the report on it. True when only an order or the supervisor changes anything now."""
        facts = self._runtime.facts(self.entry)
        verdict = self._watch.known.verdict
        step = next_step(self._wanted, facts, self._launches, failed=verdict is not None)
        self._publish(facts)
        running = facts.alive and facts.phase == "running" and facts.exit is None
        self._watch.follow(self.entry, facts, running=running and self._wanted == "start")
        match step:
            case Step.LAUNCH:
                self._launch(facts)
            case Step.ORDER_START:
                self._runtime.start(self.entry)
            case Step.ORDER_STOP:
                self._runtime.stop(self.entry)
            case Step.ORDER_FAIL if verdict is not None:
                self._runtime.fail(self.entry, verdict.kind)
            case Step.NEVER_RAN:
                self._never_ran(facts)
            case Step.GIVE_UP:
                self._record(
                    "not_prepared", f"The worker's supervisor doesn't start. {self._supervisor_said()}"
                )
            case Step.LOST:
                self._lost(facts)
            case _:
                pass
        settled = (Step.WAIT, Step.ORDER_START, Step.ORDER_STOP, Step.ORDER_FAIL)
        return (step in settled and facts.phase != "preparing") or (step is Step.LAUNCH and self._held_up())

    def _held_up(self) -> bool:
        """Before its launch it waits for secrets, or for a check, which wake this thread when they are there."""
        return self._withheld() or not self._checked()

    def _withheld(self) -> bool:
        return self.entry.assignment is not None and bool(self.entry.assignment.withheld())

    def _launch(self, facts: Facts) -> None:
        if self._withheld():
            return  # until the console has sent the secrets again
        if not self._checked():
            self._record_flaw()
            return
        if (self._launches or (self.entry.path / "launch").exists()) and not self._runtime.clear(
            self.entry, facts
        ):
            return
        self._launches += 1
        try:
            self._runtime.prepare(self.entry)
        except NotPrepared as error:
            self._record("not_prepared", str(error))
        except OSError as error:
            self._record("not_prepared", f"The worker can't be prepared: {error.strerror or error}")

    def _checked(self) -> bool:
        """Whether nothing keeps the worker from being created; begins what is due before that."""
        assignment = self.entry.assignment
        if assignment is None:
            return True
        return self._mounting.done(assignment) and self._checking.passed(assignment, self._wanted)

    def _record_flaw(self) -> None:
        flaw = self._checking.known.flaw
        if self._mounting.flaw and self._mounting.end():
            self._record("not_prepared", self._mounting.flaw)
        elif flaw is not None and not self._checking.busy:
            self._record(flaw.kind, flaw.message, machines=flaw.machines)

    def _never_ran(self, facts: Facts) -> None:
        over = self._checking.end() and self._mounting.end()
        if over and self._runtime.clear(self.entry, facts):
            self._record("stopped", "Stopped before it was started")

    def _lost(self, facts: Facts) -> None:
        message = self._runtime.lost_because(self.entry)
        if self._runtime.clear(self.entry, facts):
            self._record("lost", message, facts)
        elif self.report.exit is None:
            report = self._report(facts)
            lost = Exit(kind="lost", message=message)
            self._set(report.model_copy(update={"state": "ended", "exit": lost}))

    def _record(
        self, kind: str, message: str, facts: Facts | None = None, *, machines: tuple[str, ...] = ()
    ) -> None:
        """End the assignment; a disk that doesn't take the record must not keep the console from knowing."""
        known = {**(facts.state if facts else {}), "machines": list(machines)}
        try:
            self.entry.exit_write(kind, message, known)
            self._publish(self._runtime.facts(self.entry))
        except OSError as error:
            log.warning("assignment %s: its end can't be written: %s", self.entry.id, error)
            end = {**known, "kind": kind, "message": message}
            self._publish(Facts(alive=False, marker=False, exit=end))

    def _supervisor_said(self) -> str:
        try:
            lines = (self.entry.path / "supervisor.err").read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:300]

    def _first_report(self) -> AssignmentReport:
        """An adopted worker shows as what it is from the first request on."""
        try:
            return self._report(self._runtime.facts(self.entry))
        except Exception:
            log.exception("assignment %s can't be looked at, tried again", self.entry.id)
            return self._report(Facts(alive=False, marker=False))

    def _report(self, facts: Facts) -> AssignmentReport:
        if facts.exit is not None:
            facts = replace(
                facts, exit={**facts.exit, **self._said_for_people(facts.exit), **self._why(facts.exit)}
            )
        report = report_of(
            self.entry.id,
            self.entry.assignment,
            self._wanted,
            facts,
            watched=self._watch.known,
            log_size=self.entry.log_size(),
            now=time.time(),
        )
        assignment = self.entry.assignment
        return self._checking.told(report, assignment.preflight if assignment else None, self._wanted)

    def _said_for_people(self, end: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.entry.flaw:
            return {"kind": "lost", "message": self.entry.flaw}
        if end.get("kind") in ("not_prepared", "not_started"):
            return {"message": self._runtime.explain(self.entry, str(end.get("message") or ""))}
        return {}

    def _why(self, end: Mapping[str, Any]) -> Mapping[str, Any]:
        """The likely cause, where the worker itself has failed."""
        failed = end.get("kind") in ("probe_failed", "hung") or (
            end.get("kind") == "exited" and end.get("code")
        )
        if not failed:
            return {}
        if self._cause is None:
            self._cause = likely_cause(self.entry.path / "log")
        return {"cause": self._cause.line, "cause_at": self._cause.offset}

    def _publish(self, facts: Facts) -> None:
        report = self._report(facts)
        if report.model_copy(update={"log_size": self.report.log_size}) == self.report and not report.gone:
            return  # a log that only grows is no news, its bytes are shipped anyway
        if self.report.exit is not None and report.exit is None:
            return  # lost, and still ending
        self._set(report)

    def _set(self, report: AssignmentReport) -> None:
        if report == self.report:
            return
        before, self.report = self.report, report
        if report.state != before.state:
            log.info(
                "worker %s: %s%s",
                self._worker(),
                report.state,
                _exit_text(report.exit) if report.exit else "",
            )
        self._changed()

    def _worker(self) -> str:
        name = self.entry.assignment.worker if self.entry.assignment else "unknown"
        return f"{name} assignment={self.entry.id}"


def _exit_text(end: Exit) -> str:
    facts = [f"kind={end.kind}"]
    facts += [f"code={end.code}"] if end.code is not None else []
    facts += [f"message={end.message!r}"] if end.message else []
    return " " + " ".join(facts)
