"""What runs on a cluster and until when, in the terms of a cycle."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from machines.models import Cluster
from placement.holdings import Hold, Holding
from placement.policy import Running
from runs.models import Allocation, Assignment, Run, RunAttempt
from runs.scheduling.memory import ClusterMemory, Held
from runs.states import AttemptState, Wanted
from wire.quantities import MILLI
from wire.spec import stored_document


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


def running_load(
    cluster: Cluster, names: Mapping[int, str], memory: ClusterMemory, now: datetime
) -> tuple[Running, ...]:
    """Every attempt that goes on. The caller holds the memory's lock."""
    open_ = RunAttempt.objects.filter(run__cluster=cluster).exclude(state=AttemptState.ENDED)
    attempts = [_Open(*row) for row in open_.values_list(*_OPEN_COLUMNS)]
    _holds_read(attempts, names, memory)
    gone = _gone(cluster, names)
    return tuple(
        _running_of(attempt, memory.held[attempt.id], gone.get(attempt.id, frozenset()), now)
        for attempt in attempts
    )


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
    holds = grouped(held)
    documents = dict(Run.objects.filter(id__in=[ids[key] for key in new]).values_list("id", "document"))
    for key in new:
        document = stored_document(documents[ids[key]])
        memory.held[key] = Held(
            holds_of_rows(holds.get(key, ()), names),
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
        for key, machines in grouped(rows).items()
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


def grouped(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    """The rows less their first column, by it."""
    groups: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for key, *rest in rows:
        groups[key].append(tuple(rest))
    return groups


def holds_of_rows(rows: Iterable[tuple[Any, ...]], names: Mapping[int, str]) -> tuple[Hold, ...]:
    """From rows (machine id, GPU index or None, cores, bytes) to what is held on each machine."""
    return tuple(
        Hold(
            machine=names[machine],
            gpus=tuple(sorted(gpu for gpu, _, _ in parts if gpu is not None)),
            cpu_millicores=round(sum(cores for _, cores, _ in parts) * MILLI),
            memory_bytes=sum(memory for _, _, memory in parts),
        )
        for machine, parts in grouped(rows).items()
        if machine in names
    )
