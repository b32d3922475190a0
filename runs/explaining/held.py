"""Who holds what on a cluster's machines, now or at a time that is past."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import F, Q, Sum

from placement.holdings import Hold, Holding
from runs.models import Allocation, Run, RunAttempt
from wire.quantities import MILLI
from wire.spec import validate_document


@dataclass(frozen=True, slots=True)
class Holder:
    """A run that holds something; an independent one with all its children."""

    run_id: int
    keys: frozenset[int]
    """By which it is known: of an independent run also its children's, which passes know."""
    name: str
    workspace_id: int
    workspace: str
    limit_at: datetime | None
    """When its time limit ends it; None: it has none, or does not run yet."""
    ends_at: datetime | None
    """The same, also of a run that is only starting, as if it ran from now on."""
    since: datetime
    """When it was placed."""
    preemptible: bool
    holds: tuple[Hold, ...]

    @property
    def holding(self) -> Holding:
        return Holding(self.run_id, self.holds, self.ends_at.timestamp() if self.ends_at else None)

    @property
    def gpus(self) -> int:
        return sum(len(hold.gpus) for hold in self.holds)


def holders_of(cluster_id: int, now: datetime, *, past: bool = False) -> list[Holder]:
    """Every run that holds something in the cluster, by name; `past`: as it was at `now`."""
    holds = _holds(cluster_id, now if past else None)
    attempts = RunAttempt.objects.filter(id__in=holds).select_related("run__workspace")
    shown = (
        attempts.only(
            "opened_at",
            "time_limit_at",
            "placed_at",
            "run__name",
            "run__parent_id",
            "run__workspace__slug",
            "run__workspace_id",
        )
        .annotate(preemptible=F("run__document__spec__preemptible"))
        .order_by("run__name", "run_id", "number")
    )
    found: dict[int, list[RunAttempt]] = defaultdict(list)
    for attempt in shown:
        found[attempt.run_id].append(attempt)
    limits = _limits(attempt.run_id for each in found.values() for attempt in each if not attempt.opened_at)
    holders: dict[int, Holder] = {}
    for each in found.values():
        holder = _holder(each, [hold for attempt in each for hold in holds[attempt.id]], limits, now)
        known = holders.get(holder.run_id)
        holders[holder.run_id] = _together(known, holder) if known else holder
    return list(holders.values())


def _together(one: Holder, other: Holder) -> Holder:
    """Two children of a run: it ends with the last of them."""
    limits, ends = (one.limit_at, other.limit_at), (one.ends_at, other.ends_at)
    return replace(
        one,
        keys=one.keys | other.keys,
        limit_at=None if None in limits else max(filter(None, limits)),
        ends_at=None if None in ends else max(filter(None, ends)),
        since=min(one.since, other.since),
        preemptible=one.preemptible and other.preemptible,
        holds=tuple(sorted(one.holds + other.holds, key=lambda hold: hold.machine)),
    )


def _holds(cluster_id: int, at: datetime | None) -> dict[int, list[Hold]]:
    """By attempt, one for each of its workers."""
    rows = (
        Allocation.objects.filter(_held(at), machine__cluster=cluster_id)
        .order_by()
        .values_list("assignment__attempt_id", "assignment_id", "machine__name")
        .annotate(
            gpus=ArrayAgg("gpu__index", filter=Q(gpu__isnull=False), default=[]),
            cores=Sum("cpu_cores"),
            memory=Sum("memory_bytes"),
        )
    )
    holds: dict[int, list[Hold]] = defaultdict(list)
    for attempt, _, machine, gpus, cores, memory in rows:
        holds[attempt].append(Hold(machine, tuple(sorted(gpus)), round(cores * MILLI), memory))
    return holds


def _held(at: datetime | None) -> Q:
    if at is None:
        return Q(released_at=None)
    return Q(created_at__lte=at) & (Q(released_at=None) | Q(released_at__gt=at))


def _limits(run_ids: Iterable[int]) -> dict[int, int | None]:
    """Time limits of runs that only start, by run: in seconds."""
    documents = Run.objects.filter(id__in=set(run_ids)).values_list("id", "document")
    return {run_id: validate_document(document).time_limit_seconds for run_id, document in documents}


def _holder(
    attempts: list[RunAttempt], holds: list[Hold], limits: dict[int, int | None], now: datetime
) -> Holder:
    # What is left of an older attempt ends before the newest one does.
    newest = attempts[-1]
    run = newest.run
    limit = None if newest.opened_at else limits[run.id]
    return Holder(
        run_id=run.shown_id,
        keys=frozenset({run.id, run.shown_id}),
        name=run.name,
        workspace_id=run.workspace_id,
        workspace=run.workspace.slug,
        limit_at=newest.time_limit_at,
        ends_at=newest.time_limit_at or (now + timedelta(seconds=limit) if limit else None),
        since=newest.placed_at,
        preemptible=bool(newest.preemptible),  # type: ignore[attr-defined]  # annotated above
        holds=tuple(sorted(holds, key=lambda hold: hold.machine)),
    )
