"""From the database to what a cycle judges: jobs, running runs and shares of one cluster.

What a process knows already (`memory.py`) is not read again: of runs that it knows a pass reads a few light rows each.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.db.models import F, Q

from machines.models import Cluster, WorkspacePool
from placement import Snapshot
from placement.holdings import Hold
from placement.policy import Cycle, Job, Memory, Running, Share
from placement.policy.jobs import Shares
from runs.lemons import lemon_tiers
from runs.models import Claim, Reservation, Run
from runs.scheduling.families import families_machines, occupied_by_others
from runs.scheduling.memory import ClusterMemory, Known, memory_of
from runs.scheduling.request import Lemons, request_base, request_now
from runs.scheduling.running import grouped, holds_of_rows, running_load
from runs.stores import Needs, Reason, stores_lacking, stores_of
from wire.spec import RunDocument, validate_document

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be judged, and what it stands beside."""

    jobs: tuple[Job, ...]
    running: tuple[Running, ...]
    shares: Shares
    memory: Memory
    documents: Mapping[int, RunDocument] = field(default_factory=dict)
    """By run, of the jobs."""
    lacking: Mapping[int, Reason] = field(default_factory=dict)
    """By run that is no job now: what it names of its workspace and may no longer use."""
    broken: Mapping[int, Exception] = field(default_factory=dict)
    """By run that is no job: why its document can't be read."""

    def cycle(self, snapshot: Snapshot, usage: Mapping[int, float], now: datetime) -> Cycle:
        """`usage`: decayed GPU-seconds by workspace."""
        return Cycle(snapshot, self.jobs, self.running, self.shares, usage, now.timestamp(), self.memory)

    def with_access(self, shares: Shares, pools: Mapping[int, frozenset[str]]) -> "Plan":
        """The same runs, where other pools are open to them; both as `shares_load` gives them."""
        jobs = tuple(
            replace(job, request=replace(job.request, allowed_pools=pools.get(job.workspace, frozenset())))
            for job in self.jobs
        )
        return replace(self, jobs=jobs, shares=shares)


def plan_load(cluster: Cluster, waiting: Sequence[Run], names: Mapping[int, str], now: datetime) -> Plan:
    """A plan of these runs. `names`: machine id → name."""
    memory = memory_of(cluster.id)
    with memory.lock:
        shares, pools = shares_load(cluster)
        broken = _documents_read(waiting, memory)
        known = dict(memory.known)
        running = running_load(cluster, names, memory, now)
    lacking = _lacking(cluster, waiting, known)
    claims, kept = _claims(cluster, names), _kept(cluster, names)
    lemons = Lemons(names, lemon_tiers(cluster.id, now))
    families = families_machines({run.parent_id for run in waiting if run.parent_id})
    jobs = tuple(
        _job(
            run,
            known[run.id],
            pools[run.workspace_id],
            lemons,
            claims.get(run.id, ()),
            kept.get(run.id, frozenset()),
            occupied_by_others(run, families, names),
        )
        for run in waiting
        if run.id not in broken and run.id not in lacking
    )
    documents = {key: each.document for key, each in known.items()}
    return Plan(jobs, running, shares, memory.cycle, documents, lacking, broken)


def plan_alone(cluster: Cluster, jobs: Sequence[Job], names: Mapping[int, str], now: datetime) -> Plan:
    """A plan of jobs that are not in the queue, beside what runs."""
    memory = memory_of(cluster.id)
    with memory.lock:
        running = running_load(cluster, names, memory, now)
    return Plan(tuple(jobs), running, shares_load(cluster)[0], Memory())


def _lacking(cluster: Cluster, waiting: Sequence[Run], known: Mapping[int, Known]) -> dict[int, Reason]:
    needs = {run.id: Needs(run.workspace_id, known[run.id].stores) for run in waiting if run.id in known}
    return stores_lacking(cluster.id, needs)


def shares_load(cluster: Cluster) -> tuple[dict[tuple[int, str], Share], Mapping[int, frozenset[str]]]:
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
    return {key: holds_of_rows(of_run, names) for key, of_run in grouped(rows).items()}


def _kept(cluster: Cluster, names: Mapping[int, str]) -> dict[int, frozenset[str]]:
    rows = Reservation.objects.filter(cluster=cluster).values_list("run_id", "machines")
    return {key: frozenset(names[each] for each in machines if each in names) for key, machines in rows}


def _job(
    run: Run,
    known: Known,
    pools: frozenset[str],
    lemons: Lemons,
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
        request=replace(request_now(run, known.request, pools, lemons), occupied=occupied),
        ahead=run.restarts > 0,
        preemptible=document.spec.preemptible,
        limit_seconds=job_limit(document),
        patience_seconds=document.patience_seconds,
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
