"""An assignment's report to the console, from the facts about it. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast, get_args

from agent.journal import Facts
from agent.reconcile import Phase
from agent.signals import signal_name
from agent.watch import Watched, watched_detail
from wire.agent_messages import AssignmentReport, Exit, Note
from wire.assignments import Assignment
from wire.quantities import format_duration

_KINDS = get_args(Exit.model_fields["kind"].annotation)
_REASONS = {
    "stopped": "Stop ordered",
    "time_limit": "Time limit reached",
    "cut_off": "The console was out of reach for too long",
    "probe_failed": "A probe failed",
    "hung": "Hung",
}
_SURVIVES_SECONDS = 60
_MESSAGE_LENGTH = 500
_DETAIL_LENGTH = 300
_CAUSE_LENGTH = 300


def report_of(
    name: str,
    assignment: Assignment | None,
    wanted: Phase,
    facts: Facts,
    *,
    watched: Watched,
    log_size: int,
    now: float,
) -> AssignmentReport:
    """`name` is the assignment's id; `assignment` may be unknown (a damaged journal)."""
    try:
        return _report(name, assignment, wanted, facts, watched, log_size, now)
    except (ValueError, TypeError):  # records that are JSON, but not ours
        damaged = {"kind": "lost", "message": "The agent's records of this worker are damaged."}
        readable = replace(facts, state={}, exit=damaged if facts.exit is not None else None)
        return _report(name, assignment, wanted, readable, watched, log_size, now)


def _report(
    name: str,
    assignment: Assignment | None,
    wanted: Phase,
    facts: Facts,
    watched: Watched,
    log_size: int,
    now: float,
) -> AssignmentReport:
    state = facts.exit or facts.state
    shown = _state(wanted, facts)
    return AssignmentReport(
        id=name,
        state=shown,
        detail=_detail(assignment, shown, facts, watched, now)[:_DETAIL_LENGTH],
        ready_at=_number(state, "ready_at"),
        started_at=_number(state, "started_at") if _has_run(facts) else None,
        ended_at=_number(state, "ended_at"),
        exit=_exit(facts.exit, watched) if facts.exit is not None else None,
        gone=facts.exit is not None,
        log_size=log_size,
        notes=(*_notes(assignment, state, watched), *watched.notes),
    )


def _detail(assignment: Assignment | None, shown: str, facts: Facts, watched: Watched, now: float) -> str:
    """A process that SIGKILL doesn't end hangs in the kernel, mostly in a driver or on a dead file server."""
    killed = _number(facts.state, "killed_at")
    if facts.exit is None and killed is not None and now - killed >= _SURVIVES_SECONDS:
        return f"Still there {_SURVIVES_SECONDS} s after SIGKILL"
    if shown == "preparing" and not facts.alive and assignment is not None and assignment.withheld():
        return f"Waiting for the console to send {assignment.withheld()}"
    if shown == "preparing":
        return str(facts.state.get("detail") or "")
    return watched_detail(assignment, watched) if shown == "running" else ""


def _state(wanted: Phase, facts: Facts) -> Any:
    if facts.exit is not None:
        return "ended"
    if facts.phase == "stopping" or wanted == "stop":
        return "stopping"
    if (
        not facts.alive and not facts.marker
    ):  # its supervisor has died; what it was ready for is to be built anew
        return "preparing"
    return {"prepared": "ready", "running": "running"}.get(facts.phase, "preparing")


def _has_run(facts: Facts) -> bool:
    if facts.exit is not None:
        return facts.exit.get("code") is not None or facts.exit.get("phase") in ("running", "stopping")
    return facts.phase in ("running", "stopping")


def _exit(record: Mapping[str, Any], watched: Watched) -> Exit:
    kind = record.get("kind")
    message = str(record.get("message") or "")
    if watched.verdict is not None and watched.verdict.kind == kind:
        message = watched.verdict.message
    return Exit(
        kind=cast("Any", kind) if kind in _KINDS else "lost",
        code=record.get("code"),
        signal=record.get("signal"),
        out_of_memory=bool(record.get("out_of_memory")),
        message=message[:_MESSAGE_LENGTH],
        cause=str(record.get("cause") or "")[:_CAUSE_LENGTH],
        cause_at=record.get("cause_at"),
        machines=tuple(record.get("machines") or ()),
    )


def _notes(assignment: Assignment | None, state: Mapping[str, Any], watched: Watched) -> list[Note]:
    """Lines for the worker's History; the numbers name them, so a note keeps its number for good."""
    notes: list[Note] = []
    if state.get("ready_at"):
        files = len(assignment.files) if assignment else 0
        mounted = f", {files} config{'' if files == 1 else 's'} mounted" if files else ""
        took = float(state.get("prepare_seconds") or 0) * 1000
        what = "Container" if state.get("container") else "Sandbox"
        notes.append(Note(number=0, at=state["ready_at"], text=f"{what} prepared in {took:.0f} ms{mounted}"))
    if state.get("stopping_at"):
        notes.append(Note(number=1, at=state["stopping_at"], text=_stop_text(state, watched)))
    if state.get("killed_at"):
        grace = float(state.get("stop_grace") or 0)
        notes.append(
            Note(number=2, at=state["killed_at"], text=f"Killed with SIGKILL after {grace:g} s of grace")
        )
    if state.get("warned_at") and assignment is not None:
        left = format_duration(assignment.warn_signal_seconds or 0)
        text = f"{left} to the time limit: {assignment.stop_signal} sent as a warning"
        notes.append(Note(number=3, at=state["warned_at"], text=text))
    notes += [Note.model_validate(note) for note in state.get("notes", ())]
    return notes


def _stop_text(state: Mapping[str, Any], watched: Watched) -> str:
    signum, grace = int(state.get("stop_signal") or 0), float(state.get("stop_grace") or 0)
    reason = _REASONS.get(str(state.get("reason")), "Stop ordered")
    sent = f"{signal_name(signum)} sent, SIGKILL follows after {grace:g} s"
    if watched.verdict is not None and watched.verdict.kind == state.get("reason"):
        return f"{_sentence(watched.verdict.message[:_CAUSE_LENGTH])}; {sent}"
    return f"{reason}: {sent}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _number(state: Mapping[str, Any], key: str) -> float | None:
    value = state.get(key)
    return float(value) if isinstance(value, int | float) else None
