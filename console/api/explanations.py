"""Why runs and workers wait, or why they landed where they did."""

from datetime import datetime

from rest_framework.request import Request
from rest_framework.response import Response

from console.api import schema
from console.api.base import WorkspaceView
from console.api.explanation_answers import ExplanationAnswer
from console.api.parameters import bad_parameter, check_known
from console.api.workers import WorkerView
from runs.explaining.moments import moment_read
from runs.explanations import explanation_of, worker_explanation_of
from tenancy.roles import Permission

AT = schema.parameter(
    "at",
    {"type": "string", "format": "date-time"},
    "The judgement that was in force at this time instead of the last one, as far back as they are kept.",
)


class RunExplanation(WorkspaceView):
    @schema.operation("run_explanation", {200: ExplanationAnswer}, parameters=[AT])
    def get(self, request: Request, **_: str) -> Response:
        """Why the run waits, machine by machine, by the last pass; of a run that is placed, why there."""
        check_known(request, ("at",))
        return Response(explanation_of(self.run(request, Permission.READ_RUNS), at=_at(request)))


class WorkerExplanation(WorkerView):
    @schema.operation("worker_explanation", {200: ExplanationAnswer}, parameters=[AT])
    def get(self, request: Request, **_: str) -> Response:
        """The workers of a gang wait together: the run's explanation. One that starts on its own has its own."""
        check_known(request, ("at",))
        run, worker = self.worker(request)
        return Response(worker_explanation_of(worker, run, at=_at(request)))


def _at(request: Request) -> datetime | None:
    text = request.query_params.get("at")
    if text is None:
        return None
    at = moment_read(text)
    if at is None:
        raise bad_parameter("at", "`at` must be a time with its zone: 2026-03-01T14:03:07Z.")
    return at
