"""A run's log, of all its workers merged or of one: a page, ranges of lines by number, and a search over all of it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from common.errors import BadRequest
from console.numbers import number_read
from console.pages.errors import page
from console.pages.log_text import ERROR_BYTES, Line, coloured, log_lines
from console.pages.scope import Scope, workspace_scope
from runs.log_folds import lines_fold
from runs.log_lines import MOST_LINES, RawLine, lines_read, lines_search, log_sources
from runs.logs import left_out_words, log_complete
from runs.models import Assignment, Run
from runs.presentation import run_get, workers_ranked
from runs.reasons import exit_words
from runs.states import RUN_ENDED, WORKER_ENDED

PLAIN_LINES = 1000
"""What a page shows without JavaScript."""
MOST = 10**9
MOST_ENDS = 5
MOST_SEARCHED = 200
"""Characters that are searched for."""


@dataclass(frozen=True, slots=True)
class End:
    """What is to be known of a log below its last line: `Ended`, a time, `code 137: killed`; or a sentence alone."""

    who: str
    at: datetime | None
    text: str


@dataclass(frozen=True, slots=True)
class LogView:
    """What the viewer (parts/log.html, static/js/log.js) is given."""

    label: str
    """Whose log it is."""
    lines_address: str
    search_address: str
    folds_address: str
    assignments: list[Assignment]
    plain: list[Line]
    """The last lines, for pages without JavaScript."""
    none: str
    """What stands there while there is no line."""
    ends: list[End]
    ranks: bool
    """Several workers: each line is told with its rank."""
    download: str
    """All of it as a file; empty while nobody has a log."""


@page
@require_safe
def run_log(request: HttpRequest, organization: str, workspace: str, cluster: str, run: str) -> HttpResponse:
    """The log on a page of its own: `?worker=` names one worker, `?attempt=` an earlier attempt."""
    scope, found = _asked(request, organization, workspace, cluster, run)
    context = {
        "scope": scope,
        "section": "runs",
        "run": found,
        "workers": workers_ranked(found),
        "worker": _worker(request),
        "attempt": _number(request, "attempt"),
        "attempts": range(found.attempt_no, 0, -1),
        "log": log_view(scope, found, worker=_worker(request), attempt=_number(request, "attempt")),
    }
    return render(request, "runs/log.html", context)


@page
@require_safe
def run_log_lines(
    request: HttpRequest, organization: str, workspace: str, cluster: str, run: str
) -> HttpResponse:
    """`?first=812&count=200`: lines by number from 0, from the end where `first` is negative."""
    _, found = _asked(request, organization, workspace, cluster, run)
    sources = log_sources(found, worker=_worker(request), attempt=_number(request, "attempt"))
    count = _number(request, "count")
    got = lines_read(sources, _first(request), MOST_LINES if count is None else count)
    by_id = {each.id: each for each in sources}
    return JsonResponse(
        {
            "lines": [_line_data(line, by_id) for line in got.lines],
            "pending": [_line_data(line, by_id) for line in got.pending],
            "total": got.total,
            "attempt": max((each.attempt.number for each in sources), default=0),
            "over": found.state in RUN_ENDED or _all_ended(sources),
            "ends": [asdict(each) for each in log_ends(sources)],
        }
    )


@page
@require_safe
def run_log_search(
    request: HttpRequest, organization: str, workspace: str, cluster: str, run: str
) -> HttpResponse:
    """`?text=NET/IB&first=0`: numbers of matching lines of a part of the log; without `text` lines with errors."""
    _, found = _asked(request, organization, workspace, cluster, run)
    sources = log_sources(found, worker=_worker(request), attempt=_number(request, "attempt"))
    text = request.GET.get("text", "")[:MOST_SEARCHED]
    pattern = re.compile(re.escape(text.encode()), re.IGNORECASE) if text else ERROR_BYTES
    got = lines_search(sources, pattern, max(0, _first(request)))
    return JsonResponse({"numbers": got.numbers, "next": got.next, "total": got.total})


@page
@require_safe
def run_log_folds(
    request: HttpRequest, organization: str, workspace: str, cluster: str, run: str
) -> HttpResponse:
    """`?first=0`: lines of a part of the log that differ only in numbers. Lines with errors stand for themselves."""
    _, found = _asked(request, organization, workspace, cluster, run)
    sources = log_sources(found, worker=_worker(request), attempt=_number(request, "attempt"))
    got = lines_fold(sources, max(0, _first(request)), ERROR_BYTES)
    by_id = {each.id: each for each in sources}
    folds = [
        {"first": each.first, "count": each.count, "line": _line_data(each.last, by_id)} for each in got.folds
    ]
    return JsonResponse({"folds": folds, "read": got.read, "more": got.more})


def log_view(
    scope: Scope, run: Run, *, worker: str = "", attempt: int | None = None, plain: int = PLAIN_LINES
) -> LogView:
    """`plain`: how many lines stand in the page itself."""
    sources = log_sources(run, worker=worker, attempt=attempt)
    parts = [scope.organization.slug, scope.here.slug, run.cluster.slug, run.name]
    asked = "&".join(f"{name}={value}" for name, value in (("worker", worker), ("attempt", attempt)) if value)
    return LogView(
        label=worker or run.name,
        lines_address=f"{reverse('run_log_lines', args=parts)}?{asked}",
        search_address=f"{reverse('run_log_search', args=parts)}?{asked}",
        folds_address=f"{reverse('run_log_folds', args=parts)}?{asked}",
        assignments=sources,
        plain=_plain(sources, plain),
        none=_none_words(sources),
        ends=log_ends(sources),
        ranks=len(sources) > 1,
        download=_download(scope, run, sources, attempt),
    )


def _download(scope: Scope, run: Run, sources: list[Assignment], attempt: int | None) -> str:
    """As one text: a worker's as it was written, several merged (console/streams/logs.py, run_logs.py)."""
    place = f"/api/v1/o/{scope.organization.slug}/w/{scope.here.slug}"
    if len(sources) == 1:
        only = sources[0]
        return f"{place}/workers/{only.worker.name}/logs?attempt={only.attempt.number}"
    if run.independent and attempt is None:  # each of its workers has attempts of its own
        return f"{place}/runs/{run.name}/logs"
    return f"{place}/runs/{run.name}/logs?attempt={sources[0].attempt.number}" if sources else ""


def _plain(sources: list[Assignment], count: int) -> list[Line]:
    if not sources:
        return []
    got = lines_read(sources, -count, count)
    return log_lines(b"".join(line.data + b"\n" for line in [*got.lines, *got.pending]))


def _none_words(sources: list[Assignment]) -> str:
    """`No output yet. Preparing: pulling the image.`"""
    if sources and _all_ended(sources):
        return "This worker printed nothing." if len(sources) == 1 else "The workers printed nothing."
    told = next((each.detail for each in sources if each.detail), "")
    return f"No output yet. {told}" if told else "No output yet."


def log_ends(sources: Sequence[Assignment]) -> list[End]:
    """How it ended, and what may still arrive; of several workers, how those ended that failed."""
    failed = [each for each in sources if each.exit and (len(sources) == 1 or each.exit.get("code") != 0)]
    ends = [_end(each, named=len(sources) > 1) for each in failed]
    silent = {each.machine.name: each.machine.unreachable_at for each in sources if not log_complete(each)}
    away = [
        End("", None, f"{name} is unreachable since {since:%H:%M} UTC; what it prints arrives later.")
        for name, since in silent.items()
        if since is not None
    ]
    return [*ends[:MOST_ENDS], *away[:MOST_ENDS]]


def _end(source: Assignment, *, named: bool) -> End:
    how = exit_words(source.exit or {}, memory_bytes=source.launch.get("memory_bytes", 0))
    return End(f"{source.worker.name} ended" if named else "Ended", source.ended_at, how)


def _all_ended(sources: Iterable[Assignment]) -> bool:
    return all(each.state in WORKER_ENDED for each in sources)


def _line_data(line: RawLine, by_id: dict[Any, Assignment]) -> dict[str, Any]:
    shown = coloured(line.data)
    return {
        "n": line.number,
        "rank": by_id[line.assignment_id].worker.rank,
        "text": shown.text,
        "error": shown.error,
        "folded": shown.folded,
        "at": line.at,
        "left_out": left_out_words(line.left_out) if line.left_out else "",
    }


def _asked(
    request: HttpRequest, organization: str, workspace: str, cluster: str, run: str
) -> tuple[Scope, Run]:
    scope = workspace_scope(request, organization, workspace)
    return scope, run_get(workspace=scope.here, name=run, cluster=cluster)


def _worker(request: HttpRequest) -> str:
    return request.GET.get("worker", "")


def _first(request: HttpRequest) -> int:
    text = request.GET.get("first", "0")
    found = number_read(text.removeprefix("-"), MOST)
    if found is None:
        raise BadRequest("bad_parameter", f"`first` must be a whole number from -{MOST:,} to {MOST:,}.")
    return -found if text.startswith("-") else found


def _number(request: HttpRequest, name: str) -> int | None:
    if not request.GET.get(name):
        return None
    found = number_read(request.GET[name], MOST)
    if found is None:
        raise BadRequest("bad_parameter", f"`{name}` must be a whole number from 0 to {MOST:,}.")
    return found
