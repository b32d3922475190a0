"""Changes of a run in place: its whole document while it waits, labels and priority at any time."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.db import IntegrityError, transaction

from common.clock import database_now
from common.errors import Conflict, FieldError, Invalid
from machines.signals import cluster_changed
from runs.events import run_announce, run_move
from runs.independent.children import children_of, children_reprioritize
from runs.models import Claim, Reservation, Run
from runs.queue import ANEW
from runs.relaxing import relaxes
from runs.services import (
    Submission,
    conflict_of,
    invalid_of,
    priority_refusal,
    run_audit,
    run_locked,
    submission_read,
    work_arrange,
)
from runs.states import RunState, Wanted
from tenancy.access import Actor
from wire.names import MAX_LABELS
from wire.spec import RunDocument, SpecError, SpecErrors, validate_document

PATHS_NOTED = 100
"""Changed fields that the audit log names."""


def run_edit(*, run: Run, actor: Actor, text: str | bytes) -> None:
    """Replaces the document of a run that waits: its name, history and page stay.

    Its time in the queue stays too when the new request only relaxes the old one. Raises Invalid (all errors of the
    document at once) and Conflict (the run no longer waits, or a new worker's name is taken).
    """
    submission = submission_read(workspace=run.workspace, actor=actor, text=text)
    if refused := tuple(_moves(run, submission)):
        raise invalid_of(refused)
    try:
        with transaction.atomic():
            _replace(run_locked(run), actor, submission)
    except IntegrityError as error:
        raise conflict_of(run.workspace, submission, but=run) from error


def _moves(run: Run, submission: Submission) -> Iterator[SpecError]:
    """What an edit can't change."""
    name = submission.document.metadata.name
    if name != run.name:
        yield SpecError("metadata.name", "name_differs", f"This run is `{run.name}`. An edit keeps the name.")
    if submission.cluster.id != run.cluster_id:
        message = (
            f"This run waits in the cluster `{run.cluster.slug}`. Submit another run for another cluster."
        )
        yield SpecError("spec.cluster", "cluster_differs", message)
    start = run.document["spec"]["start"]
    if submission.document.spec.start != start:
        message = f"This run was submitted with `{start}`. Submit another run for another start."
        yield SpecError("spec.start", "start_differs", message)


def _replace(run: Run, actor: Actor, submission: Submission) -> None:
    _require_waiting(run)
    document = submission.document
    after = document.filled()
    changed = list(_differences(run.document, after))
    run_move(
        run,
        RunState.PENDING,
        {"code": "queued"},
        was=RunState.PENDING,
        history={"code": "edited", "by": actor.name},
        **_fields(run, submission, after),
        queued_at=run.queued_at if _only_relaxed(run, document) else database_now(),
    )
    work_arrange(run, submission)
    # What was kept for the old request is of no use to the new one.
    family = Run.objects.family(run.id)
    Claim.objects.filter(run__in=family).delete()
    Reservation.objects.filter(run__in=family).delete()
    run_audit(run, actor, "edit", after={"changed": changed[:PATHS_NOTED]})
    cluster_changed.send(sender=Run, cluster_id=run.cluster_id)


def _require_waiting(run: Run) -> None:
    if run.wanted != Wanted.RUN:
        raise Conflict("stopping", f"{run.name} is being stopped, so it can't be edited.")
    if run.state != RunState.PENDING:
        raise Conflict(
            "not_waiting",
            f"{run.name} is {run.state}. Only a run that waits in the queue can be edited; "
            "stop it, or submit another one.",
        )
    if run.independent and any(child.state != RunState.PENDING for child in children_of(run)):
        raise Conflict(
            "not_waiting",
            f"Some workers of {run.name} no longer wait. Only a run all of whose workers wait in the queue can be "
            "edited; stop it, or submit another one.",
        )


def _only_relaxed(run: Run, document: RunDocument) -> bool:
    try:
        return relaxes(validate_document(run.document), document)
    except SpecErrors:  # stored by a console that allowed what this one doesn't
        return False


def _fields(run: Run, submission: Submission, document: dict[str, Any]) -> dict[str, Any]:
    """The run as a new document leaves it."""
    return {
        "document": document,
        "edition": run.edition + 1,
        "submitted": submission.text,
        "labels": submission.document.metadata.labels,
        "priority": submission.document.spec.priority,
        **ANEW,
    }


def _differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Paths of the values that differ; lists are compared as a whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif before != after:
        yield path


@transaction.atomic
def run_change(
    *, run: Run, actor: Actor, labels: Mapping[str, str | None] | None = None, priority: int | None = None
) -> None:
    """Sets labels (None takes one away) and the priority, whatever the run's state. Raises Invalid."""
    locked = run_locked(run)
    if priority is not None and (refused := tuple(priority_refusal(actor, run.workspace, priority))):
        raise invalid_of(refused)
    after = {
        "labels": _labels_merged(locked.labels, labels or {}),
        "priority": locked.priority if priority is None else priority,
    }
    before = {"labels": locked.labels, "priority": locked.priority}
    if before == after:
        return
    Run.objects.filter(id=run.id).update(
        **after, document=_document_changed(locked.document, after), edition=locked.edition + 1
    )
    if locked.independent and priority is not None:
        children_reprioritize(locked, priority)
    run_audit(locked, actor, "change", before=before, after=after)
    run_announce(locked)
    if before["priority"] != after["priority"]:
        cluster_changed.send(sender=Run, cluster_id=locked.cluster_id)


def _labels_merged(labels: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**labels, **changes}
    kept = {key: value for key, value in merged.items() if value is not None}
    if len(kept) > MAX_LABELS:
        message = f"A run has at most {MAX_LABELS} labels; this would make {len(kept)}."
        raise Invalid("too_long", message, errors=(FieldError("metadata.labels", "too_long", message),))
    return kept


def _document_changed(document: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    return {
        **document,
        "metadata": {**document["metadata"], "labels": values["labels"]},
        "spec": {**document["spec"], "priority": values["priority"]},
    }
