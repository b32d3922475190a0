"""A run and its workers as the API shows them: metadata, spec, status."""

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.db.models import Prefetch, QuerySet

from common.errors import NotFound
from placement import words
from runs.models import Assignment, Run, RunAttempt, RunEvent, Worker, WorkerEvent
from runs.reasons import word
from runs.states import RunState
from tenancy.models import Workspace

JSON = dict[str, Any]


def runs_for_display(runs: QuerySet[Run]) -> QuerySet[Run]:
    """With everything that a run's status shows, in a fixed number of queries."""
    newest = Assignment.objects.select_related("machine", "attempt").order_by("-attempt__number")[:1]
    workers = (
        Worker.objects.filter(active=True)
        .order_by("rank")
        .prefetch_related(Prefetch("assignments", newest, to_attr="newest_assignment"))
    )
    attempt = RunAttempt.objects.order_by("-number")[:1]
    return runs.select_related("workspace__organization", "cluster", "created_by").prefetch_related(
        Prefetch("workers", workers, to_attr="ranked"),
        Prefetch("attempts", attempt, to_attr="newest_attempt"),
    )


def run_get(*, workspace: Workspace, name: str, cluster: str | None = None) -> Run:
    """The workspace's run of this name (in this cluster), as `runs_for_display` loads it. Raises NotFound."""
    found = runs_for_display(Run.objects.of(workspace)).filter(name=name)
    run = (found if cluster is None else found.filter(cluster__slug=cluster)).first()
    if run is None:
        raise NotFound(f"There is no run `{name[:63]}` in {workspace.slug}.")
    return run


def workers_ranked(run: Run) -> list[Worker]:
    """The active workers in rank order, of a run loaded by `runs_for_display`."""
    ranked: list[Worker] = getattr(run, "ranked", [])
    return ranked


def run_url(run: Run) -> str:
    workspace = run.workspace
    path = f"/o/{workspace.organization.slug}/w/{workspace.slug}/jobs/{run.cluster.slug}/{run.name}"
    return settings.PUBLIC_URL + path


def run_reason(run: Run) -> str:
    """The one sentence beside the run's state."""
    if run.state == RunState.PENDING and run.reason.get("code") == "waiting" and run.explanation:
        return words.headline(run.explanation)
    return word(run.reason)


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
    return {
        "state": run.state,
        "reason": run_reason(run),
        "cluster": run.cluster.slug,
        "attempt": run.attempt_no,
        "restarts": run.restarts,
        "network": {"code": placed.network, "text": words.verdict_words(placed.network)} if placed else None,
        "shape": placed.shape if placed else None,
        "workers": [worker_present(worker, run) for worker in workers_ranked(run)],
        "queued_at": run.queued_at,
        "placed_at": run.placed_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "url": run_url(run),
    }


def worker_present(worker: Worker, run: Run) -> JSON:
    """`worker` as loaded by `runs_for_display`."""
    assignment = assignment_shown(worker, run)
    exit_ = (assignment.exit or {}) if assignment else {}
    return {
        "name": worker.name,
        "run": run.name,
        "rank": worker.rank,
        "group": worker.group,
        "state": worker.state,
        "reason": worker_reason(worker, run),
        "machine": assignment.machine.name if assignment else None,
        "gpus": assignment.launch.get("gpu_uuids", []) if assignment else [],
        "address": assignment.machine.address if assignment else None,
        "exit_code": exit_.get("code"),
        "started_at": assignment.started_at if assignment else None,
    }


def attempt_shown(run: Run) -> RunAttempt | None:
    """The newest attempt of a run loaded by `runs_for_display`, unless the run waits again."""
    newest: list[RunAttempt] = getattr(run, "newest_attempt", [])
    return newest[0] if newest and run.state != RunState.PENDING else None


def assignment_shown(worker: Worker, run: Run) -> Assignment | None:
    """The worker's newest assignment, unless the run waits again."""
    newest: list[Assignment] = getattr(worker, "newest_assignment", [])
    return newest[0] if newest and run.state != RunState.PENDING else None


def worker_reason(worker: Worker, run: Run) -> str:
    """While the run waits, the whole set is explained: a worker waits for the same as its run."""
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
