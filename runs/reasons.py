"""Every reason a run or worker shows: a code with its numbers in the database, one sentence here.

A reason is a dict {"code": …, **numbers}. Only this module turns one into words. What a pass found about a waiting
run is worded by placement/words.py from the run's explanation (runs/presentation.py).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placement import words
from placement.phrases import and_list, capitalized, plural
from wire.quantities import format_duration, format_size

Reason = Mapping[str, Any]

SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    15: "SIGTERM",
}
SOMEBODY_S_RUN = "a run of another workspace"
"""One that may not be seen, in a sentence about runs: it is not named."""
SAID_BY_THE_AGENT = {
    "not_prepared",
    "not_started",
    "lost",
    "cut_off",
    "probe_failed",
    "hung",
    "preflight_failed",
}
"""Kinds of exit whose message says more than a code."""
MEANINGS = {
    126: "command could not be executed",
    127: "command not found",
    134: "aborted",
    137: "killed",
    139: "segmentation fault",
    143: "stopped",
}


def exit_words(exit_: Reason, *, memory_bytes: int = 0) -> str:
    """What an exit means to a person: 137 is "killed (out of memory: limit 800 GiB)"."""
    cause = f"; likely cause: “{exit_['cause']}”" if exit_.get("cause") else ""
    return _how_ended(exit_, memory_bytes) + cause


def _how_ended(exit_: Reason, memory_bytes: int) -> str:
    if exit_.get("kind") in SAID_BY_THE_AGENT and exit_.get("message"):
        return str(exit_["message"])
    code, signal = exit_.get("code"), exit_.get("signal")
    if exit_.get("out_of_memory"):
        return f"killed (out of memory: limit {format_size(memory_bytes)})"
    if signal is not None:
        return MEANINGS.get(128 + signal, f"ended by {SIGNALS.get(signal, f'signal {signal}')}")
    if code is None:
        return "ended in an unknown way"
    meaning = MEANINGS.get(code)
    return f"code {code}: {meaning}" if meaning else f"code {code}"


def _member(reason: Reason) -> str:
    how = exit_words(reason.get("exit", {}), memory_bytes=reason.get("memory_bytes", 0))
    return f"{reason['worker']} on {reason['machine']}: {how}"


def _detail(reason: Reason) -> str:
    return f". {reason['detail']}" if reason.get("detail") else ""


def _starting(reason: Reason) -> str:
    if reason["workers"] == 1:
        return "Starting: ready" if reason["ready"] else "Starting: preparing"
    return f"Starting together: {reason['ready']} of {reason['workers']} ready"


def _running(reason: Reason) -> str:
    text = f"{reason['running']} of {reason['workers']} workers running"
    return text + (f", {reason['succeeded']} succeeded" if reason.get("succeeded") else "")


COUNTED = ("running", "starting", "stopping", "succeeded", "failed", "stopped")
"""Children of an independent run by their state, in the order in which they are told; those that wait come last."""


def _independent(reason: Reason) -> str:
    parts = [f"{reason[name]} {name}" for name in COUNTED if reason.get(name)]
    if waiting := reason.get("waiting"):
        parts.append(f"{waiting} {'waits' if waiting == 1 else 'wait'}")
    number, rest = parts[0].split(" ", 1)
    noun = "worker" if reason["workers"] == 1 else "workers"
    return ", ".join([f"{number} of {reason['workers']} {noun} {rest}", *parts[1:]])


def _restarting(reason: Reason) -> str:
    wait = format_duration(reason["backoff_seconds"])
    failed, following = reason["attempt"], reason["attempt"] + 1
    return f"Attempt {failed} failed ({_member(reason)}). Attempt {following} is queued in {wait}."


def _failed(reason: Reason) -> str:
    after = reason.get("restarts") or 0
    lead = f"Failed after {plural(after, 'restart')}: " if after else ""
    return lead + _member(reason)


def _back_to_queue(reason: Reason) -> str:
    return f"Attempt {reason['attempt']} never ran; back in the queue. {word(reason['cause'])}"


def _never_ran(reason: Reason) -> str:
    return f"{reason['times']} attempts in a row never ran. {word(reason['cause'])}"


def _stopped(reason: Reason) -> str:
    return f"Stopped by {reason['by']}" if reason.get("by") else "Stopped"


def _lost(reason: Reason) -> str:
    return (
        f"{reason['machine']} has not been heard from for {format_duration(reason['seconds'])}. "
        "The worker may still run; if the machine comes back, it is stopped."
    )


def _patience(reason: Reason) -> str:
    now, better = (words.verdict_words(reason[key]) for key in ("now", "better"))
    if now == better:
        better = "a tighter one"
    minutes = -(-int(reason["seconds"]) // 60)
    return f"{capitalized(now)} is free now; waiting up to {minutes} min for {better}"


def _no_port(reason: Reason) -> str:
    if reason["port"] is None:
        return f"All rendezvous ports on {reason['machine']} are in use; waiting for one"
    held = f"Port {reason['port']} on {reason['machine']} is held by another run"
    return f"{held}; waiting for it. Take MASTER_PORT out of `env` to be given a free one."


def _doubtful(reason: Reason) -> str:
    gpus = ", ".join(str(gpu) for gpu in reason["gpus"])
    which = "GPU" if len(reason["gpus"]) == 1 else "GPUs"
    sign = f"{which} {gpus} on {reason['machine']} showed a warning sign before the start"
    return f"{sign}; only healthy GPUs were asked for"


def _placed(reason: Reason) -> str:
    gpus = reason.get("gpus") or []
    on = f" with {plural(len(gpus), 'GPU')}" if gpus else ""
    return f"Placed on {reason['machine']}{on}: {words.verdict_words(reason['network'])}"


def _gone(reason: Reason, what: str, then: str) -> str:
    verb = "is" if len(reason["names"]) == 1 else "are"
    named = _named(what, reason["names"])
    return f"{capitalized(named)} {verb} gone from the workspace. {then}; or edit the run."


def _named(what: str, names: Sequence[str]) -> str:
    return f"the {what if len(names) == 1 else f'{what}s'} {and_list(names)}"


def waiting_words(explanation: Reason, workspace: int) -> str:
    """The headline of a run of `workspace` that a pass refused. What that workspace may not see is not named."""
    wait = explanation.get("wait") or {}
    if "closed" in wait:
        return words.quota_headline(explanation, wait["closed"])
    if wait.get("kind") != "order" or not wait["behind"]:
        return words.headline(explanation)
    first = wait["behind"][0]
    if wait["cause"] == "quota_kept":
        kept_for = wait["behind"][-1]
        if kept_for["workspace"] == workspace:
            return f"{kept_for['run']} goes first; what is left of this workspace's quota is kept for it."
        return f"{capitalized(SOMEBODY_S_RUN)} goes first; what quotas leave is kept for it."
    keeps = "goes first and keeps machines that this run could use."
    if first["workspace"] == workspace:
        return f"{first['run']} {keeps}"
    return f"{capitalized(SOMEBODY_S_RUN)} {keeps}"


SENTENCES: dict[str, Callable[[Reason], str]] = {
    # A run, or a worker that waits.
    "queued": lambda _: "Queued; the next pass is due within seconds",
    "waiting": lambda _: "Waiting; the next pass explains it within seconds",
    "patience": _patience,
    "no_port": _no_port,
    "secret_gone": lambda r: _gone(r, "secret", "An admin can add it again"),
    "credential_gone": lambda r: _gone(r, "registry credential", "An admin can add it again"),
    "drive_closed": lambda r: (
        f"The workspace may no longer use {_named('drive', r['names'])}. An owner can open it again; "
        "or edit the run."
    ),
    "drive_read_only": lambda r: (
        f"The workspace may only read {_named('drive', r['names'])} now, and this run writes to it. Edit the run."
    ),
    "set_aside": lambda _: (
        "The last pass could not judge this run; administrators see why. Other runs are not affected."
    ),
    "starting": _starting,
    "checking": lambda r: (
        f"Checking the network between {plural(r['workers'], 'machine')} before the start"
        if r["workers"] > 1
        else "Checking the GPUs before the start"
    ),
    "opening": lambda r: f"All {plural(r['workers'], 'worker')} ready: starting",
    "running": _running,
    "independent": _independent,
    "of_worker": lambda r: f"{r['worker']}: {word(r['cause'])}",
    "stopping": lambda r: f"{r['ended']} of {r['workers']} workers ended",
    "succeeded": lambda r: f"{r['workers']} of {r['workers']} workers succeeded",
    "restarting": _restarting,
    "failed": _failed,
    "back_to_queue": _back_to_queue,
    "never_ran": _never_ran,
    "barrier_timeout": lambda _: "Gang barrier timed out waiting for all members",
    "member_failed": _member,
    "time_limit": lambda r: f"Time limit of {format_duration(r['seconds'])} reached",
    "stopped": _stopped,
    "restarted": lambda r: f"Restarted by {r['by']}",
    "edited": lambda r: f"Edited by {r['by']}; back in the queue",
    "drained": lambda r: f"{r['machine']} is drained; back in the queue",
    "preempted": lambda r: f"Stopped to make room for {r['by']}; back in the queue, not counted as a restart",
    "gpu_doubtful": _doubtful,
    # A worker.
    "placed": _placed,
    "preparing": lambda r: f"Preparing: {r['detail']}" if r.get("detail") else "Preparing",
    "ready": lambda r: "Ready, waits for the others" if r.get("gang") else "Ready",
    "worker_running": lambda r: f"Running on {r['machine']}{_detail(r)}",
    "worker_stopping": lambda r: f"Stopping on {r['machine']}{_detail(r)}",
    "exited": lambda r: (
        f"Ended on {r['machine']}: {exit_words(r['exit'], memory_bytes=r.get('memory_bytes', 0))}"
    ),
    "worker_succeeded": lambda r: f"Succeeded on {r['machine']}",
    "worker_stopped": lambda r: f"Stopped on {r['machine']}",
    "lost": _lost,
    "note": lambda r: str(r["text"]),
}


def word(reason: Reason) -> str:
    """The sentence for a reason; empty when there is none."""
    if not reason:
        return ""
    return SENTENCES[reason["code"]](reason)
