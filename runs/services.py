"""What owners do to runs: submit, stop, restart, delete. Everything else happens in gang/ and scheduling/."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Model, QuerySet

from common.clock import database_now
from common.errors import Conflict, FieldError, Invalid, NotFound
from machines.models import Cluster
from machines.signals import cluster_changed
from runs.events import run_advance_on_commit, run_move
from runs.foretold import run_foretell
from runs.independent.children import children_arrange, children_of, children_requeue
from runs.models import Assignment, Run, RunAttempt, WorkloadName
from runs.queue import ANEW
from runs.shapes import planned_shapes
from runs.states import RUN_ENDED, AttemptState, RunState, Wanted
from runs.store_checks import store_refusals
from runs.workers import workers_arrange, workers_reset
from tenancy.access import Actor, workspace_grants
from tenancy.models import Workspace
from tenancy.roles import EDITOR_PRIORITY_LIMIT, Permission
from tenancy.services import audit_record
from wire.spec import RunDocument, Shape, SpecError, SpecErrors, parse_document

M = TypeVar("M", bound=Model)

MAX_KEY = 200
"""Characters of an Idempotency-Key."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A document that this console takes."""

    document: RunDocument
    cluster: Cluster
    text: str
    """As it was sent."""
    shapes: tuple[Shape, ...]
    """Of each group: what is planned until a pass chooses one, or, where workers start on their own, fixed by this."""


def document_read(text: str | bytes) -> RunDocument:
    """The document, valid. Raises Invalid with all its errors."""
    try:
        return parse_document(text)
    except SpecErrors as errors:
        raise invalid_of(errors.errors) from errors


def invalid_of(errors: tuple[SpecError, ...]) -> Invalid:
    found = tuple(FieldError(each.path, each.code, each.message) for each in errors)
    count = "1 entry needs" if len(found) == 1 else f"{len(found)} entries need"
    return Invalid("invalid_document", f"The run was not started: {count} a change.", errors=found)


def run_submit(
    *, workspace: Workspace, actor: Actor, text: str | bytes, idempotency_key: str | None = None
) -> tuple[Run, bool]:
    """Stores a run and queues it. The second value is False when this key has already made the run.

    Raises Invalid (all errors of the document at once) and Conflict (its name, or a worker's, is taken).
    """
    submission = submission_read(workspace=workspace, actor=actor, text=text)
    if earlier := _earlier(workspace, idempotency_key, submission.text):
        return earlier, False
    try:
        with transaction.atomic():
            run = _store(workspace, actor, submission, idempotency_key)
    except IntegrityError as error:
        if earlier := _earlier(workspace, idempotency_key, submission.text):  # the same request, a moment ago
            return earlier, False
        raise conflict_of(workspace, submission) from error
    run_foretell(run, submission.document)
    return run, True


def submission_read(*, workspace: Workspace, actor: Actor, text: str | bytes) -> Submission:
    """The document, with all that is needed to queue it here. Raises Invalid with all its errors at once."""
    document = document_read(text)
    cluster = _cluster_find(workspace, document)
    refused = (
        *_cluster_refusal(workspace, document, cluster),
        *store_refusals(workspace, cluster, document),
        *priority_refusal(actor, workspace, document.spec.priority),
    )
    if refused or cluster is None:
        raise invalid_of(refused)
    sent = text if isinstance(text, str) else text.decode("utf-8")
    return Submission(document, cluster, sent, planned_shapes(document, cluster))


def _earlier(workspace: Workspace, key: str | None, text: str) -> Run | None:
    """The run that this key has made. Raises Conflict when it made another one."""
    if not key:
        return None
    if len(key) > MAX_KEY:
        raise Invalid("idempotency", f"An Idempotency-Key may have {MAX_KEY} characters.")
    run = Run.objects.of(workspace).filter(idempotency_key=key).first()
    if run and run.submitted != text:
        raise Conflict("idempotency", "This Idempotency-Key was used with another document. Take a new key.")
    return run


def _cluster_slug(workspace: Workspace, document: RunDocument) -> str:
    return document.spec.cluster or workspace.default_cluster


def _cluster_find(workspace: Workspace, document: RunDocument) -> Cluster | None:
    slug = _cluster_slug(workspace, document)
    return Cluster.objects.filter(organization=workspace.organization_id, slug=slug).first()


def _cluster_refusal(
    workspace: Workspace, document: RunDocument, cluster: Cluster | None
) -> Iterator[SpecError]:
    if cluster is None:
        there = Cluster.objects.filter(organization=workspace.organization_id).order_by("slug")
        names = ", ".join(there.values_list("slug", flat=True))
        slug = _cluster_slug(workspace, document)
        message = f"There is no cluster `{slug}` here; there is: {names or 'none yet'}."
        yield SpecError("spec.cluster", "unknown_cluster", message)


def priority_refusal(actor: Actor, workspace: Workspace, priority: int) -> Iterator[SpecError]:
    if priority <= EDITOR_PRIORITY_LIMIT:
        return
    if Permission.MANAGE_WORKSPACE not in workspace_grants(actor, workspace):
        limit = (
            f"An editor may ask for a priority of at most {EDITOR_PRIORITY_LIMIT}; an admin may ask for more."
        )
        yield SpecError("spec.priority", "priority_too_high", limit)


def _store(workspace: Workspace, actor: Actor, submission: Submission, key: str | None) -> Run:
    document = submission.document
    run = Run.objects.create(
        workspace=workspace,
        cluster=submission.cluster,
        name=document.metadata.name,
        labels=document.metadata.labels,
        independent=document.spec.start == "Independent",
        document=document.filled(),
        submitted=submission.text,
        created_by=actor.user,
        idempotency_key=key,
        priority=document.spec.priority,
        queued_at=database_now(),
    )
    WorkloadName.objects.create(workspace=workspace, name=run.name, run=run)
    work_arrange(run, submission)
    run_move(run, RunState.PENDING, {"code": "queued"}, was=RunState.PENDING)
    run_audit(run, actor, "submit", after={"priority": run.priority})
    cluster_changed.send(sender=Run, cluster_id=run.cluster_id)
    return run


def work_arrange(run: Run, submission: Submission) -> None:
    """Makes the workers of a run in the queue those of its document. Raises IntegrityError when a name is taken."""
    arrange = children_arrange if run.independent else workers_arrange
    arrange(run, submission.document, submission.shapes)


def name_taken(
    workspace: Workspace, submission: Submission, *, but: Run | None = None
) -> WorkloadName | None:
    """A name that the run, or one of its workers, would share with others (those of the run `but` aside)."""
    document = submission.document
    names = {document.metadata.name, *document.worker_names(submission.shapes)}
    taken = WorkloadName.objects.filter(workspace=workspace, name__in=names).select_related("run")
    return taken.exclude(run=but).first()


def conflict_of(workspace: Workspace, submission: Submission, *, but: Run | None = None) -> Conflict:
    """Why the run's names can't be taken."""
    taken = name_taken(workspace, submission, but=but)
    if taken is None:
        return Conflict(
            "name_taken", f"`{submission.document.metadata.name}` was taken a moment ago. Try again."
        )
    what = "a run" if taken.name == taken.run.name else f"a worker of the run `{taken.run.name}`"
    return Conflict(
        "name_taken",
        f"{workspace.slug} has {what} named `{taken.name}`. Choose another name, or delete that run first.",
        errors=(FieldError("metadata.name", "name_taken", f"`{taken.name}` is taken in this workspace."),),
    )


@transaction.atomic
def run_stop(*, run: Run, actor: Actor) -> bool:
    """Stops its workers (stop signal, grace, SIGKILL), or takes it from the queue. Ended runs stay as they are.

    False when there was nothing to do: it has ended, or was to stop already.
    """
    changed = _want(run, Wanted.STOP, actor)
    if changed:
        run_audit(run, actor, "stop")
    return changed


@transaction.atomic
def run_delete(*, run: Run, actor: Actor) -> None:
    """Stops it first, then removes it with its log and history. Idempotent."""
    if _want(run, Wanted.DELETE, actor):
        run_audit(run, actor, "delete")


def run_locked(run: Run) -> Run:
    """The run as it is now, locked. Raises NotFound when it was removed a moment ago."""
    locked = Run.objects.select_for_update(no_key=True).filter(id=run.id).first()
    if locked is None:
        raise NotFound(f"There is no run `{run.name}` any more.")
    return locked


def _want(run: Run, wanted: Wanted, actor: Actor) -> bool:
    """Moves what is wanted of the run down its list; what was said before is never taken back."""
    locked = run_locked(run)
    order = list(Wanted)
    if order.index(wanted) <= order.index(Wanted(locked.wanted)):
        return False
    if wanted == Wanted.STOP and locked.state in RUN_ENDED:
        return False
    Run.objects.filter(id=run.id).update(wanted=wanted, stopped_by=actor.name)
    run_advance_on_commit(run.id)
    return True


@transaction.atomic
def run_restart(*, run: Run, actor: Actor) -> None:
    """Queues an ended run anew, or ends the attempt that runs and queues the next one. Logs are kept."""
    locked = run_locked(run)
    if locked.wanted != Wanted.RUN and locked.state not in RUN_ENDED:
        raise Conflict("stopping", f"{run.name} is being stopped. Restart it once it has ended.")
    if locked.wanted == Wanted.DELETE:
        raise Conflict("deleting", f"{run.name} is being deleted.")
    if locked.state == RunState.PENDING:
        raise Conflict("pending", f"{run.name} is waiting in the queue already.")
    if locked.state in RUN_ENDED:
        _requeue_ended(locked, actor)
    else:
        Run.objects.filter(id=run.id).update(restart_asked=True, stopped_by=actor.name)
        run_advance_on_commit(run.id)
    run_audit(run, actor, "restart")


def _requeue_ended(run: Run, actor: Actor) -> None:
    now = database_now()
    uncounted = {"restarts": 0, "backoff_step": 0, "not_before": None, "queued_at": now}
    reason = {"code": "restarted", "by": actor.name}
    if run.independent:
        children_requeue(run, children_of(run), reason=reason, **uncounted)
    Run.objects.filter(id=run.id).update(
        **ANEW,
        **uncounted,
        wanted=Wanted.RUN,
        placed_at=None,
        started_at=None,
        ended_at=None,
        stopped_by="",
        restart_asked=False,
    )
    workers_reset(run)
    run_move(run, RunState.PENDING, reason, was=RunState(run.state))
    cluster_changed.send(sender=Run, cluster_id=run.cluster_id)


def runs_sweep_deleted() -> None:
    """Removes runs that shall go and whose workers are all gone."""
    for run in Run.objects.filter(wanted=Wanted.DELETE, state__in=RUN_ENDED):
        run_remove(run.id)


@transaction.atomic
def run_remove(run_id: int) -> bool:
    """Deletes the run's rows, unless something may still run: what it holds must stay held."""
    run = Run.objects.select_for_update().filter(id=run_id, wanted=Wanted.DELETE, state__in=RUN_ENDED).first()
    if run is None or run_holds(run):
        return False
    # Logs may still arrive. One that is being stored now is waited for: its rows would else outlive what they are of.
    list(
        _of(Assignment.objects.select_for_update(of=("self",)), run, "attempt__run")
        .order_by("id")
        .values_list("id")
    )
    run.delete()
    return True


def run_holds(run: Run) -> bool:
    """Whether a process of the run, or of a child, may still be there."""
    attempts = _of(RunAttempt.objects.all(), run, "run")
    held = attempts.filter(assignments__gone_at=None, assignments__isnull=False)
    return attempts.exclude(state=AttemptState.ENDED).exists() or held.exists()


def _of(rows: QuerySet[M], run: Run, path: str) -> QuerySet[M]:
    """Those of the run itself and of its children; `path`: from such a row to its run."""
    return rows.filter(**{f"{path}__in": Run.objects.family(run.id)})


def run_audit(run: Run, actor: Actor, action: str, *, before: Any = None, after: Any = None) -> None:
    audit_record(
        actor=actor,
        organization=run.workspace.organization,
        workspace=run.workspace,
        action=f"run.{action}",
        target=run.name,
        before=before,
        after=after,
    )
