"""A run's metrics as charts: every worker's line over one axis, drawn on the server, with the numbers beside it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.pages.scope import Scope
from runs.metric_series import Points, run_series, thinned
from runs.models import Run

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 200, 80, 24, 12
FRAME = {
    "width": WIDTH,
    "height": HEIGHT,
    "left": LEFT,
    "right": WIDTH - 8,
    "bottom": HEIGHT - BOTTOM,
    "top": TOP,
}
MOST_POINTS = 400
"""Of one line: more could not be told apart."""
MOST_CHARTS = 12
MOST_LINES = 16
MOST_ROWS = 50
DASHES = ("", "6 3", "2 3", "8 3 2 3")


@dataclass(frozen=True)
class Line:
    worker: str
    paths: tuple[str, ...]
    """SVG points; broken where a value is no number."""
    dash: str
    opacity: float


@dataclass(frozen=True)
class Chart:
    name: str
    lines: tuple[Line, ...]
    workers: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]
    """Step, then each worker's value, newest first."""
    low: str
    high: str
    first: int
    last: int
    said: str
    left_out: int
    """Workers that are not drawn."""


def run_charts(run: Run) -> list[Chart]:
    """Of the run's newest attempt, by name."""
    series: dict[str, dict[str, Points]] = {}
    for each in run_series(run):
        series.setdefault(each.name, {})[each.worker] = each.points
    return [_chart(name, of_workers) for name, of_workers in list(series.items())[:MOST_CHARTS]]


def metrics_context(run: Run, scope: Scope) -> dict[str, Any]:
    """What templates/runs/metrics.html needs."""
    return {"charts": run_charts(run), "run": run, "scope": scope, "frame": FRAME}


def _chart(name: str, of_workers: dict[str, Points]) -> Chart:
    workers = tuple(of_workers)[:MOST_LINES]
    drawn = {worker: thinned(of_workers[worker], MOST_POINTS) for worker in workers}
    values = [value for points in drawn.values() for _, value in points if math.isfinite(value)]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    steps = [step for points in drawn.values() for step, _ in points]
    first, last = min(steps), max(steps)
    frame = _Frame(first, last, low, high)
    return Chart(
        name=name,
        lines=tuple(
            Line(worker, frame.paths(drawn[worker]), DASHES[number % len(DASHES)], 1 - number * 0.04)
            for number, worker in enumerate(workers)
        ),
        workers=workers,
        rows=_rows([dict(of_workers[worker]) for worker in workers]),
        low=_beside_the_axis(low),
        high=_beside_the_axis(high),
        first=first,
        last=last,
        said=f"{name} from {_text(low)} to {_text(high)} over steps {first} to {last}",
        left_out=len(of_workers) - len(workers),
    )


@dataclass(frozen=True)
class _Frame:
    """Where a step and a value are in the picture."""

    first: int
    last: int
    low: float
    high: float

    def paths(self, points: Points) -> tuple[str, ...]:
        parts: list[list[str]] = [[]]
        for step, value in points:
            if math.isfinite(value):
                parts[-1].append(f"{self._x(step):.1f},{self._y(value):.1f}")
            elif parts[-1]:
                parts.append([])
        # A point alone is drawn as a line to itself, which round caps make a dot.
        return tuple(" ".join(part if len(part) > 1 else part * 2) for part in parts if part)

    def _x(self, step: int) -> float:
        return LEFT + (step - self.first) / max(self.last - self.first, 1) * (WIDTH - LEFT - 8)

    def _y(self, value: float) -> float:
        # Halves first: the difference of two finite numbers may be infinite.
        span = (self.high / 2 - self.low / 2) or 1.0
        share = (value / 2 - self.low / 2) / span
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)


def _rows(values: Sequence[dict[int, float]]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    steps = sorted({step for each in values for step in each}, reverse=True)[:MOST_ROWS]
    return tuple(
        (step, tuple(_text(each[step]) if step in each else "" for each in values)) for step in steps
    )


def _beside_the_axis(value: float) -> str:
    """Short enough for the room there, with a sign and an exponent."""
    return f"{value:.4g}"


def _text(value: float) -> str:
    return f"{value:.6g}"
