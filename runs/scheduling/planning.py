"""From the database to what a cycle judges: jobs, running runs, shares and usage of one cluster.

Documents and what attempts hold never change once read, so a process keeps them: a pass over runs that it knows
reads a few light rows each.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import F, Q

from machines.models import Cluster, WorkspacePool
from placement import Request
from placement.holdings import Hold, Holding
from placement.policy import Job, Memory, Running, Share
from runs.models import Allocation, Assignment, Claim, Reservation, Run, RunAttempt
from runs.scheduling.families import families_machines, occupied_by_others
from runs.scheduling.request import request_base, request_now
from runs.states import AttemptState, Wanted
from runs.stores import Needs, Reason, Stores, stores_lacking, stores_of
from wire.quantities import MILLI
from wire.spec import RunDocument, validate_document

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """What a pass needs of a document, for one edition of it."""

    edition: int
    document: RunDocument
    request: Request
    """Without pools and machines to avoid, which change."""
    stores: Stores


@dataclass(frozen=True, slots=True)
class Held:
    """What an attempt holds and what its document says of its end."""

    holds: tuple[Hold, ...]
    limit_seconds: float | None
    grace_seconds: float
    preemptible: bool


class _Open(NamedTuple):
    """An attempt that goes on. Rows, not models: there are thousands, in every pass."""

    id: int
    run_id: int
    state: str
    placed_at: datetime
    opened_at: datetime | None
    workspace_id: int
    priority: int
    wanted: str
    restart_asked: bool
    preemption: dict[str, Any] | None


_OPEN_COLUMNS = (
    "id",
    "run_id",
    "state",
    "placed_at",
    "opened_at",
    "run__workspace_id",
    "run__priority",
    "run__wanted",
    "run__restart_asked",
    "run__preemption",
)


@dataclass
class ClusterMemory:
    """Of one cluster, in one process. Forgetting it costs time, never an answer."""

    known: dict[int, Known] = field(default_factory=dict)
    """By run."""
    held: dict[int, Held] = field(default_factory=dict)
    """By attempt."""
    cycle: Memory = field(default_factory=Memory)


@dataclass(frozen=True, slots=True)
class Plan:
    """One pass's work."""

    jobs: tuple[Job, ...]
    running: tuple[Running, ...]
    shares: Mapping[tuple[int, str], Share]
    lacking: Mapping[int, Reason]
    """By run that is no job now: what it names of its workspace and may no longer use."""


def plan_load(
    cluster: Cluster, waiting: Sequence[Run], names: Mapping[int, str], memory: ClusterMemory, now: datetime
) -> tuple[Plan, dict[int, Exception]]:
    """What the pass judges; and, by run, the errors of those whose document can't be read."""
    shares, pools = _shares(cluster)
    broken = _documents_read(waiting, memory)
    lacking = _lacking(cluster, waiting, memory)
    claims, kept = _claims(cluster, names), _kept(cluster, names)
    families = families_machines({run.parent_id for run in waiting if run.parent_id})
    jobs = tuple(
        _job(
            run,
            memory.known[run.id],
            pools[run.workspace_id],
            names,
            claims.get(run.id, ()),
            kept.get(run.id, frozenset()),
            occupied_by_others(run, families, names),
        )
        for run in waiting
        if run.id not in broken and run.id not in lacking
    )
    return Plan(jobs, tuple(_running(cluster, names, memory, now)), shares, lacking), broken


def _lacking(cluster: Cluster, waiting: Sequence[Run], memory: ClusterMemory) -> dict[int, Reason]:
    needs = {
        run.id: Needs(run.workspace_id, memory.known[run.id].stores)
        for run in waiting
        if run.id in memory.known
    }
    return stores_lacking(cluster.id, needs)


def _shares(cluster: Cluster) -> tuple[dict[tuple[int, str], Share], Mapping[int, frozenset[str]]]:
    """Limits by workspace and pool where there are any, and the pools that each workspace may use."""
    rows = WorkspacePool.objects.filter(pool__cluster=cluster).values_list(
        "workspace_id", "pool__slug", "gpu_cap", "guaranteed_gpus"
    )
    shares, pools = {}, defaultdict[int, frozenset[str]](frozenset)
    for workspace, pool, cap, guaranteed in rows:
        pools[workspace] |= {pool}
        if cap is not None or guaranteed:
            shares[workspace, pool] = Share(cap, guaranteed)
    return shares, pools


def _documents_read(waiting: Sequence[Run], memory: ClusterMemory) -> dict[int, Exception]:
    """Reads the documents that are new or edited; forgets those of runs that no longer wait."""
    editions = {run.id: run.edition for run in waiting}
    memory.known = {key: known for key, known in memory.known.items() if editions.get(key) == known.edition}
    memory.cycle.ever = {key: value for key, value in memory.cycle.ever.items() if key in editions}
    unread = Run.objects.filter(id__in=editions.keys() - memory.known.keys())
    broken: dict[int, Exception] = {}
    for key, edition, data in unread.values_list("id", "edition", "document"):
        try:
            document = validate_document(data)
            memory.known[key] = Known(edition, document, request_base(document), stores_of(document))
        except Exception as error:  # one document that can't be read must not stop the others
            log.exception("the document of run %s can't be read", key)
            broken[key] = error
    missing = editions.keys() - memory.known.keys() - broken.keys()
    return broken | {key: LookupError("the run has been removed") for key in missing}


def _claims(cluster: Cluster, names: Mapping[int, str]) -> dict[int, tuple[Hold, ...]]:
    rows = Claim.objects.filter(run__cluster=cluster).values_list(
        "run_id", "machine_id", "gpu__index", "cpu_cores", "memory_bytes"
    )
    return {key: _holds(of_run, names) for key, of_run in _grouped(rows).items()}


def _kept(cluster: Cluster, names: Mapping[int, str]) -> dict[int, frozenset[str]]:
    rows = Reservation.objects.filter(cluster=cluster).values_list("run_id", "machines")
    return {key: frozenset(names[each] for each in machines if each in names) for key, machines in rows}


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    """The rows less their first column, by it."""
    groups: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for key, *rest in rows:
        groups[key].append(tuple(rest))
    return groups


def _holds(rows: Iterable[tuple[Any, ...]], names: Mapping[int, str]) -> tuple[Hold, ...]:
    """From rows (machine id, GPU index or None, cores, bytes) to what is held on each machine."""
    return tuple(
        Hold(
            machine=names[machine],
            gpus=tuple(sorted(gpu for gpu, _, _ in parts if gpu is not None)),
            cpu_millicores=round(sum(cores for _, cores, _ in parts) * MILLI),
            memory_bytes=sum(memory for _, _, memory in parts),
        )
        for machine, parts in _grouped(rows).items()
        if machine in names
    )


def _job(
    run: Run,
    known: Known,
    pools: frozenset[str],
    names: Mapping[int, str],
    claims: tuple[Hold, ...],
    kept: frozenset[str],
    occupied: frozenset[str],
) -> Job:
    document = known.document
    return Job(
        key=run.id,
        workspace=run.workspace_id,
        priority=run.priority,
        queued_at=run.queued_at.timestamp(),
        request=replace(request_now(run, known.request, pools, names), occupied=occupied),
        ahead=run.restarts > 0,
        preemptible=document.spec.preemptible,
        limit_seconds=job_limit(document),
        patience_seconds=max(
            group.template.requested_resources.topology.patience_seconds for group in document.groups()
        ),
        patient_since=run.patient_since.timestamp() if run.patient_since else None,
        claims=claims,
        kept=kept,
        family=run.parent_id,
    )


def job_limit(document: RunDocument) -> float | None:
    """Seconds from a placement to the end at the latest: barrier, time limit and grace."""
    limit = document.time_limit_seconds
    if limit is None:
        return None
    return float(document.spec.barrier_timeout_seconds + limit + document.stop_grace_seconds)


def _running(
    cluster: Cluster, names: Mapping[int, str], memory: ClusterMemory, now: datetime
) -> Iterable[Running]:
    open_ = RunAttempt.objects.filter(run__cluster=cluster).exclude(state=AttemptState.ENDED)
    attempts = [_Open(*row) for row in open_.values_list(*_OPEN_COLUMNS)]
    _holds_read(attempts, names, memory)
    gone = _gone(cluster, names)
    return [
        _running_of(attempt, memory.held[attempt.id], gone.get(attempt.id, frozenset()), now)
        for attempt in attempts
    ]


def _holds_read(attempts: Sequence[_Open], names: Mapping[int, str], memory: ClusterMemory) -> None:
    """Reads what attempts hold that this process doesn't know yet; forgets those that have ended."""
    ids = {attempt.id: attempt.run_id for attempt in attempts}
    memory.held = {key: held for key, held in memory.held.items() if key in ids}
    new = ids.keys() - memory.held.keys()
    if not new:
        return
    held = Allocation.objects.filter(assignment__attempt__in=new, released_at=None).values_list(
        "assignment__attempt_id", "machine_id", "gpu__index", "cpu_cores", "memory_bytes"
    )
    holds = _grouped(held)
    documents = dict(Run.objects.filter(id__in=[ids[key] for key in new]).values_list("id", "document"))
    for key in new:
        document = validate_document(documents[ids[key]])
        memory.held[key] = Held(
            _holds(holds.get(key, ()), names),
            document.time_limit_seconds and float(document.time_limit_seconds),
            float(document.stop_grace_seconds),
            document.spec.preemptible,
        )


def _gone(cluster: Cluster, names: Mapping[int, str]) -> dict[int, frozenset[str]]:
    """By attempt that still goes on: machines on which its worker is gone and holds nothing any more."""
    rows = (
        Assignment.objects.filter(attempt__run__cluster=cluster, gone_at__isnull=False)
        .exclude(attempt__state=AttemptState.ENDED)
        .values_list("attempt_id", "machine_id")
    )
    return {
        key: frozenset(names[machine] for (machine,) in machines if machine in names)
        for key, machines in _grouped(rows).items()
    }


def _running_of(attempt: _Open, held: Held, gone: frozenset[str], now: datetime) -> Running:
    holds = tuple(hold for hold in held.holds if hold.machine not in gone) if gone else held.holds
    leaving = (
        attempt.state == AttemptState.ENDING
        or attempt.wanted != Wanted.RUN
        or attempt.restart_asked
        or attempt.preemption is not None
    )
    return Running(
        holding=Holding(attempt.run_id, holds, _ends_at(attempt, held, now)),
        workspace=attempt.workspace_id,
        priority=attempt.priority,
        started_at=attempt.placed_at.timestamp(),
        preemptible=held.preemptible,
        leaving=leaving,
    )


def _ends_at(attempt: _Open, held: Held, now: datetime) -> float | None:
    """Epoch seconds, at the latest; None without a time limit. One that should be over by now ends soon."""
    if held.limit_seconds is None:
        return None
    opened = attempt.opened_at or now
    return max(opened + timedelta(seconds=held.limit_seconds + held.grace_seconds), now).timestamp()


def waiting_runs(cluster: Cluster, now: datetime) -> list[Run]:
    """Those that this pass judges: not the ones that back off."""
    due = Q(not_before=None) | Q(not_before__lte=now)
    return list(
        Run.objects.waiting()
        .filter(due, cluster=cluster)
        .select_related("workspace")
        .defer("document", "submitted")
        .order_by("-priority", F("restarts").desc(), "queued_at", "id")
    )
