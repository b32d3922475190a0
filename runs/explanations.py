"""Why a run waits, or why it landed where it did: one structure for the API, the command line and the pages.

What a pass saw and how it judged is had again from its record (`runs/scheduling/records.py`): an explanation comes from
the very arrays that decided. The parts are worded in `runs/explaining/`.
"""

import logging
from datetime import datetime
from typing import Any

from common.clock import database_now
from common.errors import NotFound
from runs.explaining.history import history_of, stretch_at
from runs.explaining.moments import HELD_BY_OTHERS, moment_words
from runs.explaining.recent import Recent
from runs.explaining.view import View, view_placed, view_waiting, worded
from runs.models import Run, Worker
from runs.presentation import child_told, run_reason, worker_reason, workers_ranked
from runs.scheduling.records import decisions_of, recall, recall_at, recall_placed
from runs.states import RunState

__all__ = ["HELD_BY_OTHERS", "explanation_in_rows", "explanation_of", "worker_explanation_of"]

JSON = dict[str, Any]

log = logging.getLogger(__name__)

_recent: Recent[tuple[int, int, int | None, int], JSON] = Recent(seconds=5, most=64)
"""By run, edition of its document, pass and attempt: what many readers ask for between two passes, worked out once."""

NOTHING: JSON = {
    "causes": [],
    "queue": None,
    "changes": [],
    "changes_tried": 0,
    "when": None,
    "domains": [],
    "domains_left_out": 0,
    "machines": [],
    "placement": None,
    "policy": None,
}
"""The parts that only a pass's record tells."""


def explanation_of(run: Run, *, at: datetime | None = None) -> JSON:
    """The last pass's judgement in full; `at`: the one that was in force then. Raises NotFound where none is kept.

    Of an independent run, as `runs_for_display` loads it, that of its first worker in the queue.
    """
    return worded(explanation_in_rows(run, at=at))


def explanation_in_rows(run: Run, *, at: datetime | None = None) -> JSON:
    """The same with its machines as `MachineRow`s, of which a page puts those into words that it shows."""
    if run.independent and (child := child_told(run)):
        return _of_child(run, child, explanation_in_rows(child, at=at))
    if at is not None:
        return _of_then(run, at)
    now = database_now()
    return {
        "run": run.name,
        "state": run.state,
        "kind": _kind(run),
        "cause": _cause(run),
        "headline": run_reason(run),
        "pass": run.explained_pass,
        "at": run.explained_at,
        **_recent.get(_key(run), lambda: _parts(run, now)),
        "history": history_of(run, now),
    }


def _of_child(run: Run, child: Run, explained: JSON) -> JSON:
    """Told of the run, with the name of the worker that it is about."""
    worker = workers_ranked(child)[0].name
    return {**explained, "state": run.state, "headline": f"{worker}: {explained['headline']}"}


def worker_explanation_of(worker: Worker, run: Run, *, at: datetime | None = None) -> JSON:
    """The workers of a gang wait together: the run's explanation, begun with what the set lacks.

    `worker` as `worker_get` finds it; of an independent run each is explained by itself.
    """
    own = worker.run
    explained = explanation_of(own, at=at)
    if at is None and own.state == RunState.PENDING:
        explained["headline"] = worker_reason(worker)
    return {"run": run.name, "worker": worker.name, **explained}


def _key(run: Run) -> tuple[int, int, int | None, int]:
    return (run.id, run.edition, run.explained_pass, run.attempt_no)


def _kind(run: Run) -> str:
    """What it waits for; "placed" for one that has been placed."""
    if run.state == RunState.PENDING:
        return run.wait_kind
    return "placed" if run.attempt_no else ""


def _cause(run: Run) -> str:
    if run.state != RunState.PENDING:
        return ""
    explained = run.explanation or {}
    return str(explained.get("wait", {}).get("cause") or explained.get("cause") or run.reason.get("code", ""))


def _parts(run: Run, now: datetime) -> JSON:
    """What the record tells of a run that waits, or of its newest placement."""
    waits = run.state == RunState.PENDING
    try:
        recalled = recall(run) if waits else recall_placed(run)
    except ValueError:  # written by another release; the next pass writes its own
        log.warning("the record of run %s can't be read", run.id, exc_info=True)
        return NOTHING
    if recalled is None or (waits and run.set_aside):  # the last pass has not judged it
        return NOTHING
    if waits:
        return {**NOTHING, **view_waiting(View(run, recalled, now))}
    placed = view_placed(View(run, recalled, recalled.at, past=True))
    headline = f"Placed on {placed['placement']['text']}."
    return {**NOTHING, **placed, "headline": headline, "pass": recalled.pass_no, "at": recalled.at}


def _of_then(run: Run, at: datetime) -> JSON:
    """As it was judged then. What would have started it, and when, is left out: it can't be done any more."""
    try:
        recalled = recall_at(run, at)
    except ValueError as error:
        raise NotFound(f"What is kept of {run.name} from then can't be shown: {error}") from error
    if recalled is None:
        raise NotFound(_none_kept(run, at))
    view = View(run, recalled, recalled.at, past=True)
    placed = recalled.placed
    parts = view_placed(view) if placed else view_waiting(view)
    stretch = None if placed else stretch_at(run, recalled.at)
    kind, cause = (stretch.kind, stretch.cause) if stretch else ("placed" if placed else "fit", "")
    return {
        "run": run.name,
        "state": run.state,
        "kind": kind,
        "cause": cause,
        "headline": f"Placed on {parts['placement']['text']}." if placed else view.headline(stretch),
        "pass": recalled.pass_no,
        "at": recalled.at,
        **NOTHING,
        **parts,
        "history": history_of(run, at, before=at),
    }


def _none_kept(run: Run, at: datetime) -> str:
    oldest = decisions_of(run).order_by("at").values_list("at", flat=True).first()
    if oldest is None:
        return f"No judgement of {run.name} is kept."
    return (
        f"No judgement of {run.name} is kept from before {moment_words(at, oldest)}; "
        f"the oldest is from {oldest:%Y-%m-%d %H:%M:%S} UTC."
    )
