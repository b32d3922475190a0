"""Workers over HTTP. Their logs are streamed by console/streams/logs.py."""

from rest_framework.request import Request
from rest_framework.response import Response

from console.api import schema
from console.api.answers import EventAnswer, WorkerAnswer
from console.api.base import WorkspaceView
from console.api.pages import MAX_LIMIT, PAGE_PARAMETERS, list_answer, page_of
from console.api.parameters import check_known
from runs.models import Run, Worker, WorkerEvent
from runs.presentation import events_present, worker_get, worker_present
from tenancy.roles import Permission


class WorkerView(WorkspaceView):
    """Below `…/workers/<worker>`."""

    def worker(self, request: Request) -> tuple[Run, Worker]:
        workspace = self.workspace(request, Permission.READ_RUNS)
        return worker_get(workspace=workspace, name=self.kwargs["worker"])


class OneWorker(WorkerView):
    @schema.operation("worker_show", {200: WorkerAnswer})
    def get(self, request: Request, **_: str) -> Response:
        """A worker: where it is and why."""
        check_known(request)
        run, worker = self.worker(request)
        return Response(worker_present(worker, run))


class WorkerEvents(WorkerView):
    @schema.operation(
        "worker_events", {200: schema.list_of(EventAnswer)}, parameters=[schema.LIMIT, schema.CURSOR]
    )
    def get(self, request: Request, **_: str) -> Response:
        """The worker's history over all attempts, oldest first."""
        check_known(request, PAGE_PARAMETERS)
        _run, worker = self.worker(request)
        events = WorkerEvent.objects.filter(worker=worker)
        page = page_of(events, request, newest_first=False, default=MAX_LIMIT)
        return list_answer(events_present(page.rows), page.next)
