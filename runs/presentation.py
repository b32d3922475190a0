"""A run and its workers as the API shows them: metadata, spec, status."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.db.models import Prefetch, QuerySet, prefetch_related_objects

from common.errors import NotFound
from placement import words
from runs.models import Assignment, Run, RunAttempt, RunEvent, Worker, WorkerEvent
from runs.reasons import waiting_words, word
from runs.states import RunState
from tenancy.models import Workspace
from wire.spec import stored_document

JSON = dict[str, Any]


def runs_for_display(runs: QuerySet[Run]) -> QuerySet[Run]:
    """With everything that a run's status shows, in a fixed number of queries; children are read when asked for."""
    return runs.select_related("workspace__organization", "cluster", "created_by").prefetch_related(
        *_of_run()
    )


def _of_run() -> "tuple[Prefetch[Any], ...]":
    newest = Assignment.objects.select_related("machine", "attempt").order_by("-attempt__number")[:1]
    workers = (
        Worker.objects.filter(active=True)
        .order_by("rank")
        .prefetch_related(Prefetch("assignments", newest, to_attr="newest_assignment"))
    )
    attempt = RunAttempt.objects.order_by("-number")[:1]
    return (
        Prefetch("workers", workers, to_attr="ranked"),
        Prefetch("attempts", attempt, to_attr="newest_attempt"),
    )


def children_load(runs: Iterable[Run]) -> None:
    """Reads what is shown of the children of all independent runs among these at once."""
    parents = [run for run in runs if run.independent and not hasattr(run, "ranked_children")]
    if not parents:
        return
    children = Run.objects.filter(workers__active=True).order_by("workers__rank").defer("document")
    shown = children.prefetch_related(*_of_run())
    prefetch_related_objects(parents, Prefetch("children", shown, to_attr="ranked_children"))


def run_get(*, workspace: Workspace, name: str, cluster: str | None = None) -> Run:
    """The workspace's run of this name (in this cluster), as `runs_for_display` loads it. Raises NotFound."""
    return _named(runs_for_display(Run.objects.of(workspace)), workspace, name, cluster)


def run_find(*, workspace: Workspace, name: str, cluster: str) -> Run:
    """The same without its workers, of which there may be hundreds."""
    runs = Run.objects.of(workspace).select_related("workspace__organization", "cluster")
    return _named(runs, workspace, name, cluster)


def _named(runs: QuerySet[Run], workspace: Workspace, name: str, cluster: str | None) -> Run:
    found = runs.filter(name=name)
    run = (found if cluster is None else found.filter(cluster__slug=cluster)).first()
    if run is None:
        raise NotFound(f"There is no run `{name[:63]}` in {workspace.slug}.")
    return run


def worker_get(*, workspace: Workspace, name: str) -> tuple[Run, Worker]:
    """The workspace's worker of this name and its run, as `runs_for_display` loads them. Raises NotFound."""
    found = Worker.objects.filter(run__workspace=workspace, name=name).select_related("run").first()
    if found is None:
        raise NotFound(
            f"There is no worker `{name[:63]}` in {workspace.slug}.{_workers_hint(workspace, name)}"
        )
    run = runs_for_display(Run.objects.filter(id=found.run.shown_id)).get()
    return run, next((each for each in workers_ranked(run) if each.id == found.id), found)


def _workers_hint(workspace: Workspace, name: str) -> str:
    """Who gives a run's name is told what its workers are called."""
    run = Run.objects.of(workspace).filter(name=name).first()
    if run is None:
        return ""
    named = Worker.objects.filter(run__in=Run.objects.family(run.id), active=True)
    first = named.order_by("rank").first()
    return f" That is a run; its first worker is `{first.name}`." if first else ""


def workers_ranked(run: Run) -> list[Worker]:
    """The active workers in rank order, of a run loaded by `runs_for_display`.

    `worker.run` is what places each of them: the run itself, or its own child where they start on their own.
    """
    if run.independent:
        return [worker for child in children_ranked(run) for worker in workers_ranked(child)]
    ranked: list[Worker] = getattr(run, "ranked", [])
    return ranked


def children_ranked(run: Run) -> list[Run]:
    """Of an independent run, by rank, as `runs_for_display` loads runs."""
    children_load([run])
    ranked: list[Run] = getattr(run, "ranked_children", [])
    return ranked


def run_url(run: Run) -> str:
    workspace = run.workspace
    path = f"/o/{workspace.organization.slug}/w/{workspace.slug}/jobs/{run.cluster.slug}/{run.name}"
    return settings.PUBLIC_URL + path


def run_reason(run: Run) -> str:
    """The one sentence beside the run's state. Of an independent run with what the first worker in the queue lacks."""
    if run.state != RunState.PENDING:
        return word(run.reason)
    if run.independent:
        return _reason_of_all(run)
    if run.reason.get("code") == "waiting" and run.explanation:
        return waiting_words(run.explanation, run.workspace_id)
    return word(run.reason)


def _reason_of_all(run: Run) -> str:
    first = child_told(run)
    return reason_with(run, first.explanation if first and first.reason.get("code") == "waiting" else None)


def reason_with(run: Run, lacks: JSON | None) -> str:
    """The independent run's reason, and what the first of its workers in the queue lacks."""
    return f"{word(run.reason)}. {waiting_words(lacks, run.workspace_id)}" if lacks else word(run.reason)


def child_told(run: Run) -> Run | None:
    """The child of which an independent run's explanation tells: the first one in the queue, else the first of all."""
    children = children_ranked(run)
    waiting = [child for child in children if child.state == RunState.PENDING]
    return min(waiting, key=_in_queue, default=children[0] if children else None)


def _in_queue(child: Run) -> tuple[bool, int]:
    return (child.queue_position is None, child.queue_position or 0)


def run_present(run: Run) -> JSON:
    """`run` as loaded by `runs_for_display`."""
    document = dict(run.document)
    return {
        "metadata": {"name": run.name, "labels": run.labels},
        "spec": document["spec"],
        "status": _status(run),
    }


def _status(run: Run) -> JSON:
    placed = attempt_shown(run)
    shape = placed.shape if placed else None
    return {
        "state": run.state,
        "reason": run_reason(run),
        "cluster": run.cluster.slug,
        "attempt": run.attempt_no,
        "restarts": run.restarts,
        "network": {"code": placed.network, "text": words.verdict_words(placed.network)} if placed else None,
        "shape": _shape_of_all(run) if run.independent else shape,
        "workers": [worker_present(worker, run) for worker in workers_ranked(run)],
        "queued_at": run.queued_at,
        "placed_at": run.placed_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "url": run_url(run),
    }


def _shape_of_all(run: Run) -> list[JSON]:
    """Of an independent run it is fixed from the beginning."""
    groups = stored_document(run.document).groups()
    machines = Counter(worker.group for worker in workers_ranked(run))
    return [
        {"machines": count, "gpus": group.template.requested_resources.gpu_count // count}
        for group in groups
        if (count := machines[group.name])
    ]


def worker_present(worker: Worker, run: Run) -> JSON:
    """`worker` as loaded by `runs_for_display`."""
    assignment = assignment_shown(worker)
    exit_ = (assignment.exit or {}) if assignment else {}
    return {
        "name": worker.name,
        "run": run.name,
        "rank": worker.rank,
        "group": worker.group,
        "state": worker.state,
        "reason": worker_reason(worker),
        "machine": assignment.machine.name if assignment else None,
        "gpus": assignment.launch.get("gpu_uuids", []) if assignment else [],
        "address": assignment.machine.address if assignment else None,
        "exit_code": exit_.get("code"),
        "started_at": assignment.started_at if assignment else None,
    }


def attempt_shown(run: Run) -> RunAttempt | None:
    """The newest attempt of a run loaded by `runs_for_display`, unless the run waits again.

    Of an independent run that of the first worker that has one: on one machine each all have the same network.
    """
    if run.independent:
        return next(filter(None, map(attempt_shown, children_ranked(run))), None)
    newest: list[RunAttempt] = getattr(run, "newest_attempt", [])
    return newest[0] if newest and run.state != RunState.PENDING else None


def assignment_shown(worker: Worker) -> Assignment | None:
    """The worker's newest assignment, unless it waits again."""
    newest: list[Assignment] = getattr(worker, "newest_assignment", [])
    return newest[0] if newest and worker.run.state != RunState.PENDING else None


def worker_reason(worker: Worker) -> str:
    """While a gang waits, the whole set is explained: a worker waits for the same as its run."""
    run = worker.run
    if run.state == RunState.PENDING:
        if run.explanation and run.reason.get("code") == "waiting":
            return words.worker_reason(run.explanation)
        return word(run.reason)
    return word(worker.reason)


def events_present(events: Iterable[RunEvent | WorkerEvent]) -> list[JSON]:
    return [
        {"at": event.at, "attempt": event.attempt_no, "state": event.state, "text": word(event.reason)}
        for event in events
    ]
