"""A run's metrics over HTTP: what its workers told of their training."""

import math
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from console.api import schema
from console.api.answers import MetricAnswer
from console.api.base import WorkspaceView
from console.api.pages import list_answer
from console.api.parameters import check_known, number
from runs.metric_series import Series, run_series, thinned
from runs.metrics import LARGEST_STEP, MOST_SAMPLES
from tenancy.roles import Permission

POINTS = 1_000
PARAMETERS = [
    schema.several("name", None, "Only metrics of one of these names."),
    schema.several("worker", None, "Only those of one of these workers."),
    schema.parameter(
        "from_step",
        {"type": "integer", "minimum": 0, "maximum": LARGEST_STEP},
        "Only samples of this step and later ones.",
    ),
    schema.parameter(
        "points",
        {"type": "integer", "minimum": 1, "maximum": MOST_SAMPLES},
        f"Samples of a metric and worker, evenly picked, the first and the last among them; {POINTS} by "
        "default. Of 1 it is the last one.",
    ),
]


class RunMetrics(WorkspaceView):
    @schema.operation("run_metrics", {200: schema.list_of(MetricAnswer)}, parameters=PARAMETERS)
    def get(self, request: Request, **_: str) -> Response:
        """The newest attempt's metrics, by name and worker, all on one page.

        They are what workers wrote as lines `astraeus-metric name=value step=n`.
        """
        check_known(request, ("name", "worker", "from_step", "points"))
        run = self.run(request, Permission.READ_RUNS)
        points = number(request, "points", POINTS, MOST_SAMPLES)
        series = run_series(
            run,
            names=request.query_params.getlist("name"),
            workers=request.query_params.getlist("worker"),
            from_step=number(request, "from_step", 0, LARGEST_STEP, least=0),
        )
        return list_answer(_present(each, points) for each in series)


def _present(series: Series, points: int) -> dict[str, Any]:
    finite = [value for _, value in series.points if math.isfinite(value)]
    return {
        "name": series.name,
        "worker": series.worker,
        "attempt": series.attempt,
        "count": len(series.points),
        "low": min(finite, default=None),
        "high": max(finite, default=None),
        "samples": [
            {"step": step, "value": value if math.isfinite(value) else None}
            for step, value in thinned(series.points, points)
        ],
    }
