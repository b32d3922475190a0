"""What a change of a machine or a fabric would do to the runs of its cluster, told before it is made.

The change is carried out in a transaction that is rolled back; in it only its machines' rows are read. All else
is pure: the snapshot patched with them, the pass's own cycle on both, and the gangs that would be torn apart.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction

from common.clock import database_now
from machines.models import Cluster, Fabric, Machine
from placement import Request, Snapshot
from placement.patch import patched
from placement.phrases import and_list, capitalized, plural
from placement.place import fits
from placement.policy import Decision, Patient, Placed, Refused
from placement.sharing import Gang, Split, splits
from placement.words import placement_sentence
from runs.explaining.moments import names_words
from runs.models import Assignment, Run, RunAttempt
from runs.reasons import SOMEBODY_S_RUN
from runs.scheduling.planning import Plan, plan_load, waiting_runs
from runs.scheduling.request import request_base
from runs.scheduling.rows import rows_load
from runs.scheduling.snapshot import cluster_snapshot
from runs.scheduling.usage import usage_of
from wire.spec import SpecErrors, stored_document

RUNS_TRIED = 100
"""Of the runs that wait, so many are tried: the first ones of the queue."""

OVER_SHOWN = 20
"""Of the runs that a change leaves above what is allowed, so many are named."""

PLACES = {"fabric": "fabric", "rack": "rack", "nvlink_domain": "NVLink domain"}


@dataclass(frozen=True, slots=True)
class Told:
    """One run that the change concerns. What the reader may not see is called "a run of another workspace"."""

    run: Run
    name: str
    text: str
    """After the name."""


@dataclass(frozen=True, slots=True)
class Preview:
    starts: tuple[Told, ...] = ()
    """Wait, and the next pass would start them."""
    could_start: tuple[Told, ...] = ()
    """Wait, and would have room then, but something else keeps them waiting."""
    waits: tuple[Told, ...] = ()
    """Have room now and would have none then."""
    splits: tuple[Told, ...] = ()
    """Run, and their machines would no longer share what they ask."""
    over: tuple[Told, ...] = ()
    """Run on what their workspace may not use, or not as its own, any more."""
    pass_no: int = 0
    waiting: int = 0
    """Runs of the queue; the first RUNS_TRIED of them were tried."""

    @property
    def affects(self) -> bool:
        return bool(self.starts or self.could_start or self.waits or self.splits or self.over)

    @property
    def untried(self) -> int:
        return max(0, self.waiting - RUNS_TRIED)

    @property
    def over_shown(self) -> tuple[Told, ...]:
        """A pool may have thousands of runs."""
        return self.over[:OVER_SHOWN]

    @property
    def over_more(self) -> int:
        return max(0, len(self.over) - OVER_SHOWN)

    @property
    def said(self) -> str:
        """One sentence, for who does not see the list."""
        parts = [
            f"Would start {plural(len(self.starts), 'waiting run')}" if self.starts else "",
            f"gives room to {plural(len(self.could_start), 'run')} behind others" if self.could_start else "",
            f"takes the room of {plural(len(self.waits), 'waiting run')}" if self.waits else "",
            f"splits {plural(len(self.splits), 'running gang')}" if self.splits else "",
            f"leaves {plural(len(self.over), 'running run')} above what is allowed" if self.over else "",
        ]
        text = "; ".join(filter(None, parts)) or "no waiting or running run is affected"
        return f"{capitalized(text)}."


def machine_preview(machine: Machine, change: Callable[[], None], *, visible: Collection[int]) -> Preview:
    """What `change`, a write of this machine alone, would do. Raises what `change` raises; nothing is changed.

    `visible`: ids of the workspaces whose runs the reader may see.
    """
    return machines_preview([machine], change, visible=visible)


def machines_preview(
    machines: Sequence[Machine], change: Callable[[], None], *, visible: Collection[int]
) -> Preview:
    """As `machine_preview`, of a write of these machines alone: at least one, all of one cluster."""
    return _preview(machines[0].cluster, {each.id: each.name for each in machines}, change, visible)


def fabric_preview(fabric: Fabric, change: Callable[[], None], *, visible: Collection[int]) -> Preview:
    """As `machine_preview`, of a write of this fabric alone."""
    there = Machine.objects.filter(rdma_ports__fabric=fabric).distinct()
    return _preview(fabric.cluster, dict(there.values_list("id", "name")), change, visible)


def _preview(
    cluster: Cluster, machines: Mapping[int, str], change: Callable[[], None], visible: Collection[int]
) -> Preview:
    """`machines`: those that placement sees otherwise then, by id."""
    loaded = cluster_snapshot(cluster)
    before, after = loaded.snapshot, _after(cluster.id, machines, loaded.snapshot, change)
    if after is before:  # placement does not see it
        return Preview(pass_no=cluster.pass_no)
    naming = Naming(frozenset(visible))
    torn = _torn(machines, before, after, naming)
    queue = Queue(cluster, loaded.names)
    told = queue.told(Side(before, queue.plan), Side(after, queue.plan), naming)
    return Preview(*told, torn, pass_no=cluster.pass_no, waiting=queue.waiting)


def _after(
    cluster_id: int, machines: Mapping[int, str], before: Snapshot, change: Callable[[], None]
) -> Snapshot:
    with transaction.atomic():
        change()
        rows = rows_load(cluster_id, machines)
        transaction.set_rollback(True)
    return patched(before, rows.tables, gone=list(machines.values()), storage_fabrics=rows.storage)


@dataclass(frozen=True, slots=True)
class Naming:
    """What runs are called for a reader who may see these workspaces."""

    visible: frozenset[int]

    def of(self, run: Run) -> str:
        return run.name if run.workspace_id in self.visible else SOMEBODY_S_RUN


# --- Runs that wait -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Side:
    """What a pass would judge: before the change, or after it."""

    snapshot: Snapshot
    plan: Plan

    def with_room(self) -> set[int]:
        """Runs that have room, each taken alone and whatever its quota."""
        return {job.key for job in self.plan.jobs if fits(self.snapshot, job.request)}


class Queue:
    """The runs that wait, judged as a pass would judge them on either side."""

    def __init__(self, cluster: Cluster, names: Mapping[int, str]) -> None:
        """`names`: machine id → name."""
        self.now = database_now()
        waiting = waiting_runs(cluster, self.now)
        self.waiting = len(waiting)
        """More than are tried, where there are more than RUNS_TRIED."""
        self.runs = {run.id: run for run in waiting[:RUNS_TRIED]}
        self.usage = usage_of(cluster, self.now)
        self.plan = plan_load(cluster, waiting[:RUNS_TRIED], names, self.now)

    def told(
        self, before: Side, after: Side, naming: Naming
    ) -> tuple[tuple[Told, ...], tuple[Told, ...], tuple[Told, ...]]:
        """Those that start, those that could, those that no longer could."""
        room_now, room_then = before.with_room(), after.with_room()
        if room_now == room_then:
            return (), (), ()
        placed_now, placed_then = self.judged(before), self.judged(after)
        starts, could = self.gains(placed_now, placed_then, room_then - room_now, naming)
        return starts, could, self.losses(room_now - room_then, naming)

    def judged(self, side: Side) -> dict[int, Decision]:
        """What a pass would decide, in its order."""
        cycle = side.plan.cycle(side.snapshot, self.usage, self.now)
        decided = {}
        for job in cycle.order():
            decided[job.key] = decision = cycle.judge(job)
            if isinstance(decision, Placed):
                cycle.took(job, decision.placement)
        return decided

    def gains(
        self,
        now: Mapping[int, Decision],
        then: Mapping[int, Decision],
        more_room: Collection[int],
        naming: Naming,
    ) -> tuple[tuple[Told, ...], tuple[Told, ...]]:
        """Those that start, and of those that have `more_room` the ones that do not."""
        started = {key for key, each in now.items() if isinstance(each, Placed)}
        starts, could = [], []
        for key, decision in then.items():
            if isinstance(decision, Placed):
                if key not in started:
                    starts.append(
                        self._told(key, naming, placement_sentence(decision.placement.as_headline()))
                    )
            elif key in more_room:
                could.append(self._told(key, naming, self._behind_words(decision, naming)))
        return told_once(starts), told_once(could)

    def losses(self, keys: Collection[int], naming: Naming) -> tuple[Told, ...]:
        return told_once([self._told(key, naming, "could no longer start") for key in sorted(keys)])

    def _told(self, key: int, naming: Naming, text: str) -> Told:
        run = self.runs[key]
        return Told(run, naming.of(run), text)

    def _behind_words(self, decision: Patient | Refused, naming: Naming) -> str:
        if isinstance(decision, Patient):
            return "would have room then, and wait for a better network"
        if decision.kind == "policy":
            return "would have room then, but not within its quota"
        ahead = [naming.of(self.runs[key]) for key in decision.behind if key in self.runs]
        if ahead:
            return f"could then start, but {names_words(ahead)} goes first"
        return "could then start, but runs before it in the queue take the room"


def told_once(told: Iterable[Told]) -> tuple[Told, ...]:
    """Workers that start on their own wait one by one, under the name of their run: it is told once."""
    return tuple({each.run.shown_id: each for each in reversed(list(told))}.values())[::-1]


# --- Gangs that run -----------------------------------------------------------------------------------


def _torn(machines: Collection[int], before: Snapshot, after: Snapshot, naming: Naming) -> tuple[Told, ...]:
    attempts = RunAttempt.objects.filter(assignments__machine__in=machines, assignments__gone_at=None)
    runs = {run.id: run for run in Run.objects.filter(attempts__in=attempts).distinct()}
    torn = {split.gang.key: split for split in splits(before, after, _gangs(attempts, runs))}
    return tuple(
        Told(runs[key], naming.of(runs[key]), _split_words(split)) for key, split in sorted(torn.items())
    )


def _gangs(attempts: Iterable[RunAttempt], runs: Mapping[int, Run]) -> list[Gang]:
    requests = {key: request for key, run in runs.items() if (request := _request(run))}
    held = Assignment.objects.held().filter(attempt__in=attempts)
    machines: dict[tuple[int, str], list[str]] = defaultdict(list)
    for run, group, name in held.values_list("attempt__run_id", "worker__group", "machine__name"):
        machines[run, group].append(name)
    return [
        Gang(key, requests[key], index, tuple(names))
        for (key, group), names in machines.items()
        if key in requests
        for index, asked in enumerate(requests[key].groups)
        if asked.name == group
    ]


def _request(run: Run) -> Request | None:
    try:
        return request_base(stored_document(run.document))
    except SpecErrors:  # of an older version: nothing is known of what it asks
        return None


def _split_words(split: Split) -> str:
    """`runs in r2 and would span r2 and r7. It goes on; a restart needs 4 machines in one rack`."""
    what = PLACES[split.level]
    there = [*split.after, *(f"an unknown {what} ({name})" for name in split.unknown)]
    needs = f"a restart needs {plural(len(split.gang.machines), 'machine')} in one {what}"
    return f"runs in {and_list(split.before)} and would span {and_list(there)}. It goes on; {needs}"
