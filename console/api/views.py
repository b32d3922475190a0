"""Runs, workers and machines over HTTP. Each view: who asks, one call, one answer."""

from collections.abc import Iterable

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from common.errors import BadRequest, FieldError, NotFound, TooLarge
from console.api import schema
from console.api.pages import page_of
from runs import services
from runs.explanations import explanation_of
from runs.models import Run, RunEvent, Worker
from runs.presentation import (
    events_present,
    run_get,
    run_present,
    runs_for_display,
    worker_present,
    workers_ranked,
)
from tenancy.access import workspace_for
from tenancy.authentication import actor_of
from tenancy.models import Workspace
from tenancy.roles import Permission
from wire.spec.tree import MAX_DOCUMENT_BYTES

NUL = "\x00"
"""PostgreSQL keeps none in a text, so nothing here is called so."""
RUN_FILTERS = ("state", "label", "q", "cluster", "limit", "cursor")


class WorkspaceView(APIView):
    """Below `/api/v1/o/<org>/w/<workspace>/`."""

    def workspace(self, request: Request, need: Permission) -> Workspace:
        if any(NUL in value for value in self.kwargs.values()):
            raise NotFound
        return workspace_for(actor_of(request), self.kwargs["organization"], self.kwargs["workspace"], need)

    def run(self, request: Request, need: Permission) -> Run:
        """The run that the address names, with all that is shown of it."""
        workspace = self.workspace(request, need)
        return run_get(workspace=workspace, name=self.kwargs["run"])


def _only(request: Request, allowed: Iterable[str]) -> None:
    """Unknown query parameters are mistakes to be told, not to be ignored."""
    known = tuple(allowed)
    unknown = sorted(set(request.query_params) - set(known))
    if unknown:
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        errors = tuple(
            FieldError(name, "unknown_parameter", f"`{name}` is not a parameter here; {takes}.")
            for name in unknown
        )
        raise BadRequest("unknown_parameter", errors[0].message, errors=errors)
    for name, values in request.query_params.lists():
        if any(NUL in value for value in values):
            message = f"`{name}` has a NUL character."
            raise BadRequest("bad_parameter", message, errors=(FieldError(name, "bad_parameter", message),))


def _body(request: Request) -> bytes:
    """The raw document: wire/spec.py reads it itself, so that it can tell duplicate keys and places of errors."""
    if request.content_type.split(";")[0].strip() not in {"application/json", ""}:
        raise UnsupportedMediaType(
            request.content_type, "Send the run document as JSON: content-type: application/json."
        )
    _not_too_large(int(request.META.get("CONTENT_LENGTH") or 0))
    body = bytes(request._request.body)  # noqa: SLF001 - DRF's own body property parses first
    _not_too_large(len(body))  # one that came in pieces tells no length
    return body


def _not_too_large(length: int) -> None:
    if length > MAX_DOCUMENT_BYTES:
        raise TooLarge("too_large", "The document is over 2 MiB. Put large files on a drive.")


class Runs(WorkspaceView):
    @extend_schema(operation_id="runs_list", parameters=schema.RUN_LIST, responses=schema.RUN_PAGE)
    def get(self, request: Request, **_: str) -> Response:
        """The workspace's runs, newest first."""
        workspace = self.workspace(request, Permission.READ_RUNS)
        _only(request, RUN_FILTERS)
        runs, cursor = page_of(_filtered(Run.objects.of(workspace), request), request)
        shown = runs_for_display(Run.objects.filter(id__in=[run.id for run in runs])).order_by("-id")
        return Response({"items": [run_present(run) for run in shown], "next": cursor})

    @extend_schema(
        operation_id="runs_submit",
        request=schema.DOCUMENT,
        responses={201: schema.RUN},
        parameters=schema.SUBMIT,
    )
    def post(self, request: Request, **_: str) -> Response:
        """Submits a run. All errors of the document come at once."""
        workspace = self.workspace(request, Permission.WRITE_RUNS)
        _only(request, ())
        key = request.headers.get("Idempotency-Key")
        run, created = services.run_submit(
            workspace=workspace, actor=actor_of(request), text=_body(request), idempotency_key=key
        )
        shown = runs_for_display(Run.objects.filter(id=run.id)).get()
        return Response(run_present(shown), status=201 if created else 200)


def _filtered(runs: QuerySet[Run], request: Request) -> QuerySet[Run]:
    params = request.query_params
    if states := params.getlist("state"):
        runs = runs.filter(state__in=[state for each in states for state in each.split(",")])
    for label in params.getlist("label"):
        key, _, value = label.partition("=")
        runs = runs.filter(labels__contains={key: value})
    if text := params.get("q"):
        runs = runs.filter(name__icontains=text)
    if cluster := params.get("cluster"):
        runs = runs.filter(cluster__slug=cluster)
    return runs


class OneRun(WorkspaceView):
    @extend_schema(operation_id="run_show", responses=schema.RUN)
    def get(self, request: Request, **_: str) -> Response:
        """The run: metadata, spec, status."""
        _only(request, ())
        return Response(run_present(self.run(request, Permission.READ_RUNS)))

    @extend_schema(operation_id="run_delete", responses={202: schema.RUN, 204: None})
    def delete(self, request: Request, **_: str) -> Response:
        """Stops the run, then removes it with its log and history. Idempotent: 202 until it is gone."""
        _only(request, ())
        run = self.run(request, Permission.WRITE_RUNS)
        services.run_delete(run=run, actor=actor_of(request))
        if services.run_remove(run.id):
            return Response(status=204)
        try:
            return Response(run_present(self.run(request, Permission.READ_RUNS)), status=202)
        except NotFound:  # gone meanwhile: what was asked for is done
            return Response(status=204)


class RunAction(WorkspaceView):
    """`POST …/stop` and `…/restart`."""

    action = ""

    @extend_schema(request=None, responses={202: schema.RUN})
    def post(self, request: Request, **_: str) -> Response:
        """Does it; the answer shows the run as it is now."""
        _only(request, ())
        run = self.run(request, Permission.WRITE_RUNS)
        act = {"stop": services.run_stop, "restart": services.run_restart}[self.action]
        act(run=run, actor=actor_of(request))
        return Response(run_present(self.run(request, Permission.READ_RUNS)), status=202)


class RunWorkers(WorkspaceView):
    @extend_schema(operation_id="run_workers", responses=schema.OBJECT)
    def get(self, request: Request, **_: str) -> Response:
        """The run's workers in rank order."""
        _only(request, ())
        run = self.run(request, Permission.READ_RUNS)
        return Response({"items": [worker_present(worker, run) for worker in workers_ranked(run)]})


class RunEvents(WorkspaceView):
    @extend_schema(operation_id="run_events", responses=schema.OBJECT)
    def get(self, request: Request, **_: str) -> Response:
        """The run's history, oldest first."""
        _only(request, ())
        run = self.run(request, Permission.READ_RUNS)
        events = RunEvent.objects.filter(run=run).order_by("-id")[:1000]
        return Response({"items": events_present(reversed(events))})


class RunExplanation(WorkspaceView):
    @extend_schema(operation_id="run_explanation", responses=schema.OBJECT)
    def get(self, request: Request, **_: str) -> Response:
        """Why the run waits, machine by machine, by the last pass that looked at it."""
        _only(request, ())
        return Response(explanation_of(self.run(request, Permission.READ_RUNS)))


class OneWorker(WorkspaceView):
    @extend_schema(operation_id="worker_show", responses=schema.OBJECT)
    def get(self, request: Request, **_: str) -> Response:
        """A worker: where it is and why."""
        _only(request, ())
        run, worker = self.worker(request)
        return Response(worker_present(worker, run))

    def worker(self, request: Request) -> tuple[Run, Worker]:
        workspace = self.workspace(request, Permission.READ_RUNS)
        found = Worker.objects.filter(run__workspace=workspace, name=self.kwargs["worker"]).first()
        if found is None:
            raise NotFound(f"There is no worker `{self.kwargs['worker'][:63]}` in {workspace.slug}.")
        run = runs_for_display(Run.objects.filter(id=found.run_id)).get()
        worker = next((each for each in workers_ranked(run) if each.id == found.id), found)
        return run, worker


class WorkerExplanation(OneWorker):
    @extend_schema(operation_id="worker_explanation", responses=schema.OBJECT)
    def get(self, request: Request, **_: str) -> Response:
        """The workers of a gang wait together, so this is the run's explanation."""
        _only(request, ())
        run, _worker = self.worker(request)
        return Response(explanation_of(run))
