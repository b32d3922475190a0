"""The children of an independent run follow its document."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from common.clock import database_now
from runs.independent.documents import child_document
from runs.models import Run, Worker, WorkloadName
from runs.queue import ANEW, NOT_QUEUED, runs_leave_queue
from runs.states import RunState, Wanted, WorkerState
from runs.workers import workers_wanted
from wire.spec import RunDocument, Shape

FRESH: dict[str, Any] = {
    **ANEW,
    "wanted": Wanted.RUN,
    "state": RunState.PENDING,
    "stopped_by": "",
    "restart_asked": False,
    "preemption": None,
    "placed_at": None,
    "started_at": None,
    "ended_at": None,
}
"""A child that goes into the queue, for the first time or anew."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A worker as the document wants it."""

    name: str
    rank: int
    group: str
    group_rank: int
    document: dict[str, Any]


def children_of(parent: Run) -> list[Run]:
    """Those that have a part in it, locked, in the order in which all lock several runs. The parent is locked."""
    active = parent.children.filter(workers__active=True).select_for_update(no_key=True, of=("self",))
    return list(active.defer("document").order_by("id"))


def children_arrange(parent: Run, document: RunDocument, shapes: Sequence[Shape]) -> None:
    """Makes the children those that the document asks for, one a worker, as the parent is in the queue.

    A worker that is no longer asked for stays, inactive, while it has a history; its name stays taken.
    Raises IntegrityError when a name is taken in the workspace.
    """
    children_of(parent)
    known = {each.name: each for each in Worker.objects.filter(run__parent=parent).select_related("run")}
    wanted = _wanted(document, shapes)
    _create(parent, [each for each in wanted if each.name not in known])
    _keep(parent, [(known[each.name], each) for each in wanted if each.name in known])
    _drop(parent, known.keys() - {each.name for each in wanted})


def _wanted(document: RunDocument, shapes: Sequence[Shape]) -> list[_Wanted]:
    of_group = {
        group.name: child_document(document, number, shape)
        for number, (group, shape) in enumerate(zip(document.groups(), shapes, strict=True))
    }
    return [
        _Wanted(name, rank, group, group_rank, of_group[group])
        for rank, (name, group, group_rank) in enumerate(workers_wanted(document, shapes))
    ]


def _create(parent: Run, wanted: Sequence[_Wanted]) -> None:
    children = Run.objects.bulk_create(
        Run(
            parent=parent,
            workspace_id=parent.workspace_id,
            cluster_id=parent.cluster_id,
            name=parent.name,
            document=each.document,
            reason={"code": "queued"},
            priority=parent.priority,
            queued_at=parent.queued_at,
        )
        for each in wanted
    )
    Worker.objects.bulk_create(
        Worker(run=child, rank=each.rank, group=each.group, group_rank=each.group_rank, name=each.name)
        for child, each in zip(children, wanted, strict=True)
    )
    WorkloadName.objects.bulk_create(
        WorkloadName(workspace_id=parent.workspace_id, name=each.name, run=parent) for each in wanted
    )


def _keep(parent: Run, pairs: Sequence[tuple[Worker, _Wanted]]) -> None:
    for worker, each in pairs:
        worker.rank, worker.group_rank, worker.active = each.rank, each.group_rank, True
        worker.state, worker.reason = WorkerState.PENDING, {}
        child = worker.run
        for name, value in FRESH.items():
            setattr(child, name, value)
        child.document, child.edition, child.reason = each.document, child.edition + 1, {"code": "queued"}
        child.priority, child.queued_at = parent.priority, parent.queued_at
    Worker.objects.bulk_update(
        [worker for worker, _ in pairs], ["rank", "group_rank", "active", "state", "reason"]
    )
    changed = (*FRESH, "document", "edition", "reason", "priority", "queued_at")
    Run.objects.bulk_update([worker.run for worker, _ in pairs], changed)


def _drop(parent: Run, names: set[str]) -> None:
    dropped = parent.children.filter(workers__name__in=names)
    unused = dropped.filter(attempts=None)
    used = list(dropped.exclude(attempts=None).distinct().values_list("id", flat=True))
    WorkloadName.objects.filter(run=parent, name__in=unused.values("workers__name")).delete()
    unused.delete()
    Worker.objects.filter(run__in=used).update(active=False)
    Run.objects.filter(id__in=used).update(state=RunState.STOPPED, reason={"code": "stopped"}, **NOT_QUEUED)
    runs_leave_queue(used, database_now())


def children_reprioritize(parent: Run, priority: int) -> None:
    """The parent's priority has changed."""
    for child in parent.children.filter(id__in=[child.id for child in children_of(parent)]):
        spec = {**child.document["spec"], "priority": priority}
        Run.objects.filter(id=child.id).update(
            priority=priority, edition=child.edition + 1, document={**child.document, "spec": spec}
        )


def children_requeue(parent: Run, children: Sequence[Run], **fields: Any) -> None:
    """All of them, which are over, wait again; their attempts are numbered alike from now on."""
    ids = [child.id for child in children]
    Run.objects.filter(id__in=ids).update(**{**FRESH, "attempt_no": parent.attempt_no, **fields})
    Worker.objects.filter(run__in=ids).update(state=WorkerState.PENDING, reason={})
