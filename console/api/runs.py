"""Runs over HTTP. Each view: who asks, one call, one answer."""

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from common.errors import NotFound
from console.api import schema
from console.api.answers import DryRunAnswer, EventAnswer, RunAnswer, WorkerAnswer
from console.api.base import WorkspaceView
from console.api.bodies import body_of, document_text
from console.api.pages import MAX_LIMIT, PAGE_PARAMETERS, list_answer, page_of
from console.api.parameters import check_known, choices, flag
from console.api.requests import RunChange
from runs import services
from runs.editing import run_change, run_edit
from runs.foresight import run_foresee
from runs.models import Run, RunEvent
from runs.presentation import (
    children_load,
    events_present,
    run_present,
    runs_for_display,
    worker_present,
    workers_ranked,
)
from runs.removal import run_delete_now
from runs.states import RunState
from tenancy.models import Workspace
from tenancy.roles import Permission

LIST = [
    schema.several("state", RunState.values, "Only runs in one of these states.", joined=True),
    schema.several("label", None, "Only runs with this label, `key=value`."),
    schema.parameter("q", {"type": "string"}, "Only runs whose name contains this."),
    schema.parameter("cluster", {"type": "string"}, "Only runs of this cluster."),
    schema.LIMIT,
    schema.CURSOR,
]


class Runs(WorkspaceView):
    @schema.operation("runs_list", {200: schema.list_of(RunAnswer)}, parameters=LIST)
    def get(self, request: Request, **_: str) -> Response:
        """The workspace's runs, newest first."""
        workspace = self.workspace(request, Permission.READ_RUNS)
        check_known(request, ("state", "label", "q", "cluster", *PAGE_PARAMETERS))
        page = page_of(runs_for_display(_filtered(Run.objects.of(workspace), request)), request)
        children_load(page.rows)
        return page.answer(run_present)

    @schema.operation(
        "runs_submit",
        {201: RunAnswer, 200: {"anyOf": [schema.reference(RunAnswer), schema.reference(DryRunAnswer)]}},
        body=schema.DOCUMENT_BODY,
        parameters=[schema.DRY_RUN, schema.IDEMPOTENCY],
        refusals=(*schema.SEND, 409),
    )
    def post(self, request: Request, **_: str) -> Response:
        """Submits a run. All errors of the document come at once.

        200 instead of 201: this Idempotency-Key has made the run before; or, with `dry_run`, where the run could
        start now, or why it could not.
        """
        workspace = self.workspace(request, Permission.WRITE_RUNS)
        check_known(request, ("dry_run",))
        dry_run, text = flag(request, "dry_run"), document_text(request)
        if dry_run:
            return Response(run_foresee(workspace=workspace, actor=self.actor(request), text=text))
        return self._submit(request, workspace, text)

    def _submit(self, request: Request, workspace: Workspace, text: bytes) -> Response:
        run, created = services.run_submit(
            workspace=workspace,
            actor=self.actor(request),
            text=text,
            idempotency_key=request.headers.get("Idempotency-Key"),
        )
        shown = runs_for_display(Run.objects.filter(id=run.id)).get()
        return Response(run_present(shown), status=201 if created else 200)


def _filtered(runs: QuerySet[Run], request: Request) -> QuerySet[Run]:
    params = request.query_params
    if states := choices(request, "state", RunState.values):
        runs = runs.filter(state__in=states)
    for label in params.getlist("label"):
        key, _, value = label.partition("=")
        runs = runs.filter(labels__contains={key: value})
    if text := params.get("q"):
        runs = runs.filter(name__icontains=text)
    if cluster := params.get("cluster"):
        runs = runs.filter(cluster__slug=cluster)
    return runs


class OneRun(WorkspaceView):
    @schema.operation("run_show", {200: RunAnswer})
    def get(self, request: Request, **_: str) -> Response:
        """The run: metadata, spec, status."""
        check_known(request)
        return Response(run_present(self.run(request, Permission.READ_RUNS)))

    @schema.operation("run_edit", {200: RunAnswer}, body=schema.DOCUMENT_BODY, refusals=(*schema.SEND, 409))
    def put(self, request: Request, **_: str) -> Response:
        """Replaces the document of a run that waits: name, history and page stay.

        Its time in the queue stays too when the new request only relaxes the old one, else it starts anew.
        """
        check_known(request)
        run = self.run(request, Permission.WRITE_RUNS)
        run_edit(run=run, actor=self.actor(request), text=document_text(request))
        return self._now(request)

    @schema.operation("run_change", {200: RunAnswer}, body=RunChange, refusals=schema.SEND)
    def patch(self, request: Request, **_: str) -> Response:
        """Changes labels (null takes one away) or the priority, whatever the run's state."""
        check_known(request)
        run = self.run(request, Permission.WRITE_RUNS)
        change = body_of(request, RunChange)
        run_change(
            run=run,
            actor=self.actor(request),
            labels=change.metadata.labels,
            priority=change.spec.priority,
        )
        return self._now(request)

    @schema.operation("run_delete", {202: RunAnswer, 204: None}, refusals=schema.WRITE)
    def delete(self, request: Request, **_: str) -> Response:
        """Stops the run, then removes it with its log and history. Idempotent: 202 until it is gone."""
        check_known(request)
        run = self.run(request, Permission.WRITE_RUNS)
        if run_delete_now(run=run, actor=self.actor(request)):
            return Response(status=204)
        try:
            return Response(run_present(self.run(request, Permission.READ_RUNS)), status=202)
        except NotFound:  # gone meanwhile: what was asked for is done
            return Response(status=204)

    def _now(self, request: Request) -> Response:
        return Response(run_present(self.run(request, Permission.READ_RUNS)))


class RunStop(WorkspaceView):
    @schema.operation("run_stop", {202: RunAnswer}, refusals=schema.WRITE)
    def post(self, request: Request, **_: str) -> Response:
        """Stops the workers (stop signal, grace, SIGKILL), or takes the run from the queue."""
        check_known(request)
        services.run_stop(run=self.run(request, Permission.WRITE_RUNS), actor=self.actor(request))
        return Response(run_present(self.run(request, Permission.READ_RUNS)), status=202)


class RunRestart(WorkspaceView):
    @schema.operation("run_restart", {202: RunAnswer}, refusals=(*schema.WRITE, 409))
    def post(self, request: Request, **_: str) -> Response:
        """Queues an ended run anew, or ends the attempt that runs and queues the next one. Logs are kept."""
        check_known(request)
        services.run_restart(run=self.run(request, Permission.WRITE_RUNS), actor=self.actor(request))
        return Response(run_present(self.run(request, Permission.READ_RUNS)), status=202)


class RunWorkers(WorkspaceView):
    @schema.operation("run_workers", {200: schema.list_of(WorkerAnswer)})
    def get(self, request: Request, **_: str) -> Response:
        """The run's workers in rank order, all on one page."""
        check_known(request)
        run = self.run(request, Permission.READ_RUNS)
        return list_answer(worker_present(worker, run) for worker in workers_ranked(run))


class RunEvents(WorkspaceView):
    @schema.operation(
        "run_events", {200: schema.list_of(EventAnswer)}, parameters=[schema.LIMIT, schema.CURSOR]
    )
    def get(self, request: Request, **_: str) -> Response:
        """The run's history, oldest first."""
        check_known(request, PAGE_PARAMETERS)
        run = self.run(request, Permission.READ_RUNS)
        events = RunEvent.objects.filter(run=run)
        page = page_of(events, request, newest_first=False, default=MAX_LIMIT)
        return list_answer(events_present(page.rows), page.next)
