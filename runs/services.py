"""What owners do to runs: submit, stop, restart, delete. Everything else happens in gang/ and scheduling/."""

from collections.abc import Iterator
from typing import Any

from django.db import IntegrityError, transaction

from common.clock import database_now
from common.errors import Conflict, FieldError, Invalid, NotFound
from common.nudge import task_send_on_commit
from machines.models import Cluster
from machines.signals import cluster_changed
from runs.available import unavailable
from runs.events import run_move
from runs.models import Assignment, Run, RunAttempt, WorkloadName
from runs.states import RUN_ENDED, AttemptState, RunState, Wanted
from runs.workers import workers_arrange, workers_reset
from tenancy.access import Actor, workspace_grants
from tenancy.models import Workspace
from tenancy.roles import EDITOR_PRIORITY_LIMIT, Permission
from tenancy.services import audit_record
from wire.spec import RunDocument, SpecError, SpecErrors, parse_document

MAX_KEY = 200
"""Characters of an Idempotency-Key."""


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
    document = document_read(text)
    cluster = _cluster_find(workspace, document)
    refused = (
        *unavailable(document),
        *_cluster_refusal(workspace, document, cluster),
        *_priority_refusal(actor, workspace, document.spec.priority),
    )
    if refused or cluster is None:
        raise invalid_of(refused)
    decoded = text if isinstance(text, str) else text.decode("utf-8")
    if earlier := _earlier(workspace, idempotency_key, decoded):
        return earlier, False
    try:
        with transaction.atomic():
            return _store(workspace, actor, cluster, document, decoded, idempotency_key), True
    except IntegrityError as error:
        if earlier := _earlier(workspace, idempotency_key, decoded):  # the same request, a moment ago
            return earlier, False
        raise _conflict(workspace, document) from error


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


def _priority_refusal(actor: Actor, workspace: Workspace, priority: int) -> Iterator[SpecError]:
    if priority <= EDITOR_PRIORITY_LIMIT:
        return
    if Permission.MANAGE_WORKSPACE not in workspace_grants(actor, workspace):
        limit = (
            f"An editor may ask for a priority of at most {EDITOR_PRIORITY_LIMIT}; an admin may ask for more."
        )
        yield SpecError("spec.priority", "priority_too_high", limit)


def _store(
    workspace: Workspace, actor: Actor, cluster: Cluster, document: RunDocument, text: str, key: str | None
) -> Run:
    run = Run.objects.create(
        workspace=workspace,
        cluster=cluster,
        name=document.metadata.name,
        labels=document.metadata.labels,
        document=document.filled(),
        submitted=text,
        created_by=actor.user,
        idempotency_key=key,
        priority=document.spec.priority,
        queued_at=database_now(),
    )
    WorkloadName.objects.create(workspace=workspace, name=run.name, run=run)
    workers_arrange(run, document, [group.template.shapes()[0] for group in document.groups()])
    run_move(run, RunState.PENDING, {"code": "queued"}, was=RunState.PENDING)
    _audit(run, actor, "submit", after={"priority": run.priority})
    cluster_changed.send(sender=Run, cluster_id=cluster.id)
    return run


def _conflict(workspace: Workspace, document: RunDocument) -> Conflict:
    names = {
        document.metadata.name,
        *document.worker_names([g.template.shapes()[0] for g in document.groups()]),
    }
    taken = WorkloadName.objects.filter(workspace=workspace, name__in=names).select_related("run").first()
    if taken is None:
        return Conflict("name_taken", f"`{document.metadata.name}` was taken a moment ago. Try again.")
    what = "a run" if taken.name == taken.run.name else f"a worker of the run `{taken.run.name}`"
    return Conflict(
        "name_taken",
        f"{workspace.slug} has {what} named `{taken.name}`. Choose another name, or delete that run first.",
        errors=(FieldError("metadata.name", "name_taken", f"`{taken.name}` is taken in this workspace."),),
    )


@transaction.atomic
def run_stop(*, run: Run, actor: Actor) -> None:
    """Stops its workers (stop signal, grace, SIGKILL), or takes it from the queue. Ended runs stay as they are."""
    if _want(run, Wanted.STOP, actor):
        _audit(run, actor, "stop")


@transaction.atomic
def run_delete(*, run: Run, actor: Actor) -> None:
    """Stops it first, then removes it with its log and history. Idempotent."""
    if _want(run, Wanted.DELETE, actor):
        _audit(run, actor, "delete")


def _locked(run: Run) -> Run:
    """The run as it is now, locked. Raises NotFound when it was removed a moment ago."""
    locked = Run.objects.select_for_update(no_key=True).filter(id=run.id).first()
    if locked is None:
        raise NotFound(f"There is no run `{run.name}` any more.")
    return locked


def _want(run: Run, wanted: Wanted, actor: Actor) -> bool:
    """Moves what is wanted of the run down its list; what was said before is never taken back."""
    locked = _locked(run)
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
    locked = _locked(run)
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
    _audit(run, actor, "restart")


def _requeue_ended(run: Run, actor: Actor) -> None:
    now = database_now()
    Run.objects.filter(id=run.id).update(
        wanted=Wanted.RUN,
        restarts=0,
        backoff_step=0,
        voids=0,
        voids_of_any_kind=0,
        void_kind="",
        not_before=None,
        queued_at=now,
        placed_at=None,
        started_at=None,
        ended_at=None,
        stopped_by="",
        restart_asked=False,
        explanation=None,
    )
    workers_reset(run)
    run_move(run, RunState.PENDING, {"code": "restarted", "by": actor.name}, was=RunState(run.state))
    cluster_changed.send(sender=Run, cluster_id=run.cluster_id)


def run_advance_on_commit(run_id: int) -> None:
    """Has the one deciding place look at this run, as soon as the transaction is committed."""
    from runs import tasks

    task_send_on_commit(tasks.run_advance, run_id)


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
    list(Assignment.objects.select_for_update().filter(attempt__run=run).order_by("id").values_list("id"))
    run.delete()
    return True


def run_holds(run: Run) -> bool:
    """Whether a process of the run may still be there."""
    active = RunAttempt.objects.filter(run=run).exclude(state=AttemptState.ENDED)
    held = RunAttempt.objects.filter(run=run, assignments__gone_at=None, assignments__isnull=False)
    return active.exists() or held.exists()


def _audit(run: Run, actor: Actor, action: str, after: Any = None) -> None:
    audit_record(
        actor=actor,
        organization=run.workspace.organization,
        workspace=run.workspace,
        action=f"run.{action}",
        target=run.name,
        after=after,
    )
