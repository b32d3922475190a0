"""The workers of a run follow the shape that is planned or was chosen for it."""

from collections.abc import Sequence

from runs.models import Run, Worker, WorkloadName
from runs.states import WorkerState
from wire.spec import RunDocument, Shape


def workers_arrange(run: Run, document: RunDocument, shapes: Sequence[Shape]) -> list[Worker]:
    """Makes the run's active workers those of `shapes` (one a group) and returns them in rank order.

    The one worker of a child stays what it is.
    A worker that a new shape no longer has stays, inactive, while it has a history; its name stays taken.
    Raises IntegrityError when a name is taken in the workspace.
    """
    if run.parent_id is not None:
        return list(run.workers.all())
    wanted = workers_wanted(document, shapes)
    known = {worker.name: worker for worker in run.workers.all()}
    if [worker.name for worker in sorted(known.values(), key=lambda w: w.rank) if worker.active] == [
        name for name, _, _ in wanted
    ]:
        return sorted((w for w in known.values() if w.active), key=lambda w: w.rank)
    if known:
        run.workers.update(active=False)
    workers = [
        _place_in_gang(known.get(name) or Worker(run=run, name=name), rank, group, group_rank)
        for rank, (name, group, group_rank) in enumerate(wanted)
    ]
    new = [worker for worker in workers if worker.pk is None]
    WorkloadName.objects.bulk_create(
        WorkloadName(workspace_id=run.workspace_id, name=worker.name, run=run) for worker in new
    )
    Worker.objects.bulk_create(new)
    if known:
        kept = [worker for worker in workers if worker.name in known]
        Worker.objects.bulk_update(kept, ["rank", "active", "group_rank"])
        _drop_unused(run)
    return workers


def _place_in_gang(worker: Worker, rank: int, group: str, group_rank: int) -> Worker:
    worker.rank, worker.group, worker.group_rank, worker.active = rank, group, group_rank, True
    return worker


def workers_wanted(document: RunDocument, shapes: Sequence[Shape]) -> list[tuple[str, str, int]]:
    """(name, group, rank in the group) of the workers that such shapes give, in rank order."""
    places = [
        (group.name, group_rank)
        for group, shape in zip(document.groups(), shapes, strict=True)
        for group_rank in range(shape.machines)
    ]
    return [(name, *place) for name, place in zip(document.worker_names(shapes), places, strict=True)]


def _drop_unused(run: Run) -> None:
    unused = run.workers.filter(active=False, assignments=None)
    WorkloadName.objects.filter(run=run, name__in=unused.values("name")).delete()
    unused.delete()


def workers_reset(run: Run) -> None:
    """Back in the queue: all active workers are Pending again."""
    run.workers.filter(active=True).update(state=WorkerState.PENDING, reason={})
