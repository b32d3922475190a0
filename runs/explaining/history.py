"""What blocked a run over its wait, and for how long each."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from runs.models import Run, RunWait
from runs.reasons import waiting_words, word
from wire.quantities import format_duration

SHOWN = 100
"""Stretches told, the newest."""

KIND_WORDS = {"order": "order", "fit": "fit", "policy": "policy", "never": "never possible"}


def history_of(run: Run, now: datetime, before: datetime | None = None) -> list[dict[str, Any]]:
    """Oldest first; `before`: as it was known then."""
    waits = RunWait.objects.filter(run=run.id).order_by("-id")
    if before is not None:
        waits = waits.filter(since__lte=before)
    return [_stretch(wait, run, before or now) for wait in reversed(waits[:SHOWN])]


def stretch_at(run: Run, at: datetime) -> RunWait | None:
    """What it waited for then."""
    return RunWait.objects.filter(run=run.id, since__lte=at).order_by("-id").first()


def stretch_words(wait: RunWait, run: Run) -> str:
    """The sentence that began a stretch of the wait."""
    told = wait.headline
    return word(told) if "code" in told else waiting_words(told, run.workspace_id)


def _stretch(wait: RunWait, run: Run, now: datetime) -> dict[str, Any]:
    until = wait.until if wait.until and wait.until <= now else None
    return {
        "kind": wait.kind,
        "cause": wait.cause,
        "text": stretch_words(wait, run),
        "since": wait.since,
        "until": until,
        "seconds": max(0, int(((until or now) - wait.since).total_seconds())),
    }


def history_words(history: Iterable[Mapping[str, Any]]) -> str:
    """ "Waited 12 min: order 9 min, fit 3 min."; empty before the first second is over."""
    sums: dict[str, int] = {}
    for stretch in history:
        sums[stretch["kind"]] = sums.get(stretch["kind"], 0) + stretch["seconds"]
    if not any(sums.values()):
        return ""
    parts = [f"{KIND_WORDS[kind]} {format_duration(seconds)}" for kind, seconds in sums.items()]
    return f"Waited {format_duration(sum(sums.values()))}: {', '.join(parts)}."
