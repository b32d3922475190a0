"""Gangs in tests: placed by a real pass, driven by the reports of agents, decided by the one deciding place."""

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from machines.models import Machine
from runs.gang.apply import run_advance
from runs.models import Allocation, Assignment, Run
from runs.reasons import word
from runs.reports import reports_apply
from runs.scheduling.passes import cluster_place
from tests import factories
from wire.agent_messages import AssignmentReport, Exit, Note, Observed
from wire.inventory import Inventory

INVENTORY = Inventory(cpu_cores=96, memory_bytes=1024 * factories.GIB, features=("preflight",))
"""Of an agent that knows what the reference asks for, and nothing beyond."""
CRASH = Exit(kind="exited", code=1)
SUCCESS = Exit(kind="exited", code=0)


def report(assignment: Assignment, state: str, **fields: Any) -> AssignmentReport:
    """What an agent says of one assignment; times that its state implies are filled in."""
    now = time.time()
    implied = {"ready": {"ready_at": now}, "running": {"ready_at": now, "started_at": now}}
    return AssignmentReport.model_validate(
        {"id": str(assignment.id), "state": state, **implied.get(state, {}), **fields}
    )


def ended(assignment: Assignment, exit_: Exit, *, gone: bool = True, **fields: Any) -> AssignmentReport:
    """It has run and ended."""
    now = time.time()
    times = {"started_at": now} if exit_.kind not in {"not_prepared", "not_started"} else {}
    return report(assignment, "ended", ended_at=now, exit=exit_, gone=gone, **{**times, **fields})


def tell(
    machine: Machine,
    *reports: AssignmentReport,
    applied: int | None = None,
    skew: float = 0,
    inventory: Inventory = INVENTORY,
) -> None:
    """As its agent reports; `applied` None: what is not reported says nothing."""
    reports_apply(
        machine_id=machine.id,
        observed=Observed(inventory=inventory, assignments=reports),
        applied_revision=applied,
        skew=timedelta(seconds=skew),
    )


def note(number: int, text: str) -> Note:
    return Note(number=number, at=time.time(), text=text)


@dataclass(frozen=True)
class Gang:
    """The present attempt of a run, as its members' agents see it."""

    run: Run

    @property
    def members(self) -> list[Assignment]:
        found = Assignment.objects.filter(attempt__run=self.run, attempt__number=self.fresh.attempt_no)
        return list(found.select_related("machine", "worker", "attempt").order_by("worker__rank"))

    @property
    def fresh(self) -> Run:
        return Run.objects.get(id=self.run.id)

    def say(self, rank: int, state: str, **fields: Any) -> None:
        member = self.members[rank]
        tell(member.machine, report(member, state, **fields))

    def end(self, rank: int, exit_: Exit = SUCCESS, *, gone: bool = True, **fields: Any) -> None:
        member = self.members[rank]
        tell(member.machine, ended(member, exit_, gone=gone, **fields))

    def all_say(self, state: str, **fields: Any) -> None:
        for rank in range(len(self.members)):
            self.say(rank, state, **fields)

    def all_end(self, exit_: Exit) -> None:
        for rank in range(len(self.members)):
            self.end(rank, exit_)

    def advance(self) -> tuple[str, str]:
        """Lets the deciding place look; the run's state and its reason in words."""
        run_advance(self.run.id)
        return self.shown()

    def shown(self) -> tuple[str, str]:
        run = self.fresh
        return run.state, word(run.reason)

    def start(self) -> "Gang":
        """To "2 of 2 workers running"."""
        self.all_say("ready")
        self.advance()
        self.all_say("running")
        self.advance()
        return self

    def worker_states(self) -> list[str]:
        return list(self.run.workers.filter(active=True).order_by("rank").values_list("state", flat=True))

    def phases(self) -> list[str]:
        return [member.phase for member in self.members]

    def held(self) -> int:
        """Allocations that are still held, of all its attempts."""
        return Allocation.objects.filter(assignment__attempt__run=self.run, released_at=None).count()


def placed(house: factories.House, name: str = "ddp-resnet50", *, machines: int = 2, **spec: Any) -> Gang:
    """A run of `machines` × 8 GPUs, submitted and placed by a pass."""
    document = factories.document_make(name, gpus=8 * machines, machines=machines, **spec)
    run = factories.run_pending(house, name, document=document)
    return replaced(Gang(run))


def placed_on(house: factories.House, machine: Machine) -> Gang:
    """A run of one worker with both GPUs of `machine`, which counts as heard."""
    Machine.objects.filter(id=machine.id).update(last_seen_at=timezone.now())
    document = factories.document_make("solo", gpus=2, machines=1)
    return replaced(Gang(factories.run_pending(house, "solo", document=document)))


def replaced(gang: Gang) -> Gang:
    """The gang after one more pass, which must have placed it."""
    cluster_place(gang.run.cluster_id)
    assert gang.fresh.state == "Starting", gang.fresh.explanation or gang.fresh.set_aside
    return gang


def back_off_over(gang: Gang) -> None:
    Run.objects.filter(id=gang.run.id).update(not_before=None)
