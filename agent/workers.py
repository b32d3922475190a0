"""All assignments of this machine: adopted from the journal at the start, then kept as the console wants them."""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agent.executor import Executor
from agent.exports import Exports
from agent.journal import Entry, Journal, JournalError
from agent.network_drives import NetworkDrives
from agent.preflight.checking import Surveyor
from agent.reconcile import Forget, Held, Phase, Raise, Take, decide
from agent.runtime import Runtime
from agent.silence import GpusBusy
from wire.agent_messages import AssignmentReport, Exit
from wire.assignments import Assignment, Desired

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tail:
    """A log to ship; `final` says that nothing is written to it any more."""

    entry: Entry
    final: bool


class Workers:
    """Safe to use from several threads. `changed` is called whenever `reports` would differ."""

    def __init__(
        self,
        journal: Journal,
        runtime: Runtime,
        *,
        gpus_busy: GpusBusy,
        surveyor: Surveyor,
        drives: NetworkDrives,
        exports: Exports,
        changed: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._runtime = runtime
        self._gpus_busy = gpus_busy
        self._surveyor = surveyor
        self._drives = drives
        self._exports = exports
        self._changed = changed
        self._lock = threading.RLock()
        self._executors: dict[str, Executor] = {}
        self._refused: dict[str, AssignmentReport] = {}
        self._shipped: set[str] = set()
        self._desired: Desired | None = None
        self._unconfirmed: Desired | None = None

    def adopt(self, desired: Desired | None) -> None:
        """Take up what earlier agents left. `desired` is the last state they had applied, if it is known.

        What hasn't started yet is only prepared until `confirm`: the console may have given it up while this
        machine was off, and have started it elsewhere.
        """
        listed = {assignment.id: assignment for assignment in desired.assignments} if desired else {}
        # Before the lock: what is unmounted may have a file server that is dead.
        self._drives.clean({entry.id for entry in self._journal.entries()})
        with self._lock:
            for found in self._journal.entries():
                entry = self._mended(found, listed.get(found.id))
                self._execute(entry, _unstarted(entry.assignment.phase) if entry.assignment else "stop")
            if desired is not None:
                careful = [a.model_copy(update={"phase": _unstarted(a.phase)}) for a in listed.values()]
                self.apply(desired.model_copy(update={"assignments": tuple(careful)}))
                self._unconfirmed = desired

    def confirm(self) -> None:
        """The console has answered and knows nothing newer than what was adopted."""
        with self._lock:
            if self._unconfirmed is not None:
                self.apply(self._unconfirmed)

    def _mended(self, entry: Entry, assignment: Assignment | None) -> Entry:
        """A damaged record is written anew from the desired state, which has the same assignment."""
        if assignment is None or not entry.flaw:
            return entry
        try:
            return self._journal.create(assignment)
        except JournalError as error:
            log.warning("assignment %s: %s", entry.id, error)
            return entry

    def apply(self, desired: Desired) -> None:
        with self._lock:
            self._desired, self._unconfirmed = desired, None
            self._exports.apply(desired.exports)
            for assignment in desired.assignments:
                if assignment.id in self._executors:
                    self._executors[assignment.id].complete(assignment)
            for action in decide(desired, self._held()):
                match action:
                    case Take(assignment):
                        self._take(assignment)
                    case Raise(name, phase):
                        self._executors[name].raise_to(phase)
                    case Forget(name):
                        self._forget(name)

    def names(self) -> set[str]:
        """Ids of all assignments that are held here."""
        with self._lock:
            return {*self._executors, *self._refused}

    def preparing(self) -> bool:
        """Whether a worker is about to be ready."""
        with self._lock:
            return any(executor.report.state == "preparing" for executor in self._executors.values())

    def settle(self) -> None:
        """Forget what has become finished since the last desired state came."""
        with self._lock:
            if self._desired is not None and any(held.finished for held in self._held().values()):
                self.apply(self._desired)

    def _held(self) -> dict[str, Held]:
        held = {
            name: Held(executor.wanted, finished=executor.released and name in self._shipped)
            for name, executor in self._executors.items()
        }
        return held | {name: Held("stop", finished=True) for name in self._refused}

    def _take(self, assignment: Assignment) -> None:
        try:
            entry = self._journal.create(assignment)
        except JournalError as error:
            log.warning("worker %s assignment=%s: %s", assignment.worker, assignment.id, error)
            end = Exit(kind="not_prepared", message=str(error))
            self._refused[assignment.id] = AssignmentReport(
                id=assignment.id, state="ended", exit=end, gone=True
            )
            self._changed()
            return
        self._execute(entry, assignment.phase)

    def _execute(self, entry: Entry, wanted: Phase) -> None:
        executor = Executor(
            entry,
            self._runtime,
            wanted,
            gpus_busy=self._gpus_busy,
            surveyor=self._surveyor,
            drives=self._drives,
            changed=self._changed,
            settle=self.settle,
        )
        self._executors[entry.id] = executor
        executor.start()

    def _forget(self, name: str) -> None:
        self._refused.pop(name, None)
        executor = self._executors.pop(name, None)
        if executor is not None:
            self._journal.forget(executor.entry)
        self._shipped.discard(name)
        self._changed()

    def wake(self, name: str) -> None:
        with self._lock:
            executor = self._executors.get(name)
        if executor is not None:
            executor.wake()

    def reports(self) -> tuple[AssignmentReport, ...]:
        with self._lock:
            reports = [executor.report for executor in self._executors.values()]
            return tuple(sorted([*reports, *self._refused.values()], key=lambda report: report.id))

    def tails(self) -> list[Tail]:
        """Logs of which the console may still lack something."""
        with self._lock:
            pending = [(n, e) for n, e in self._executors.items() if n not in self._shipped]
            return [Tail(executor.entry, final=executor.gone) for _, executor in pending]

    def logs_shipped(self, names: Iterable[str]) -> None:
        """The console has these ended assignments' whole logs, or doesn't want them."""
        with self._lock:
            self._shipped.update(name for name in names if name in self._executors)
            self.settle()

    def ports_held(self) -> set[int]:
        """Rendezvous ports that leaders of ours hold or may be using."""
        with self._lock:
            alive = [e for e in self._executors.values() if not e.gone and e.entry.assignment]
            ports = {e.entry.assignment.rendezvous_port for e in alive if e.entry.assignment}
        return {port for port in ports if port is not None}

    def close(self) -> None:
        """End the threads and leave the workers running."""
        with self._lock:
            for executor in self._executors.values():
                executor.close()


def _unstarted(phase: Phase) -> Phase:
    """What is running goes on anyway: an order to start changes nothing about it."""
    return "stop" if phase == "stop" else "prepare"
