"""`./dev bench start`: how long from the submission of a two-worker gang until both its processes have started.

The clock starts before the request is sent. It ends when the later of the two workers has read it itself, as its
first act (a line in its log): the agents' `started_at` would be a little earlier and flatter us, since it is
taken before the command is executed. Everything runs on this machine, so all times are by one clock.

The runs come one after the other, each deleted before the next, as on an idle cluster. One more run goes before
them and is not counted: it loads code and opens connections, which the first run after a start of the console pays.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from benchmarks._common import MACHINES, Bench, percentile, two_machines, unused_port
from console.local.errors import LocalError
from console.local.processes import wait_until

SECONDS = 30.0
"""A run that takes longer is a failure, not a figure."""
TEMPLATE = {
    "image": "none",
    "command": "bash",
    "args": ["-c", 'echo "$EPOCHREALTIME"'],
    "requested_resources": {
        "gpu_requests": {"count": 2, "models": ["H100"]},
        "machines": 2,
        "per_gpu": {"cpu_cores": 1, "memory_bytes": 1073741824},
        "network": {"interconnect": "infiniband"},
    },
}
TIMES = """
SELECT extract(epoch FROM t.placed_at)::float, max(extract(epoch FROM a.ready_at)::float),
       extract(epoch FROM t.opened_at)::float
FROM runs_runattempt t JOIN runs_assignment a ON a.attempt_id = t.id JOIN runs_run r ON r.id = t.run_id
WHERE r.name = %s GROUP BY t.id ORDER BY t.number
"""


@dataclass(frozen=True)
class Times:
    """One run: seconds from the beginning of its submission."""

    answered: float
    """The console has answered the submission."""
    placed: float
    ready: float
    """Both sandboxes wait at the barrier: by their agents' clocks, as the console corrects them."""
    opened: float
    """The barrier is open."""
    started: float
    """The later command runs, by its own word."""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench start", description="Submission to both workers' start."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=20, help="how many (20)")
    options = parser.parse_args(argv)
    with two_machines() as bench:
        _measure(bench, "warm-up")
        times = [_measure(bench, f"start-{number}") for number in range(1, options.runs + 1)]
    started = [each.started for each in times]
    figures = {
        "runs": len(times),
        "p50_ms": _ms(percentile(started, 0.5)),
        "p95_ms": _ms(percentile(started, 0.95)),
    }
    print(json.dumps(figures) if options.json else _table(times))
    return 0


def _measure(bench: Bench, name: str) -> Times:
    document = {"metadata": {"name": name}, "spec": {"start": "Gang", "task_template": _template()}}
    begun = time.time()
    answer = bench.api.post("/runs", json=document)
    answered = time.time()
    answer.raise_for_status()
    state = wait_until(lambda: bench.ended(name), seconds=SECONDS, what=f"the end of {name}")
    if state != "Succeeded":
        raise LocalError(f"{name} is {state}: {bench.api.get(f'/runs/{name}').json()['status']['reason']}")
    said = [float(_log(bench, f"{name}-{rank}")) for rank in range(len(MACHINES))]
    attempts = bench.database.execute(TIMES, [name]).fetchall()
    if len(attempts) != 1:
        raise LocalError(f"{name} took {len(attempts)} attempts:\n{_history(bench, name)}")
    _delete(bench, name)
    placed, ready, opened = attempts[0]
    moments = (answered, placed, ready, opened, max(said))
    return Times(*(moment - begun for moment in moments))


def _template() -> dict[str, Any]:
    """With a rendezvous port that nothing uses: the simulated machines' ports are this host's, and 29500 is wanted."""
    return {**TEMPLATE, "env": {"MASTER_PORT": str(unused_port())}}


def _log(bench: Bench, worker: str) -> str:
    """The worker's log, once it is whole."""
    return bench.api.get(f"/workers/{worker}/logs", params={"follow": "true"}).raise_for_status().text


def _history(bench: Bench, name: str) -> str:
    events = bench.api.get(f"/runs/{name}/events").raise_for_status().json()["items"]
    return "\n".join(f"{event['at']} {event['state']}: {event['text']}" for event in events)


def _delete(bench: Bench, name: str) -> None:
    def gone() -> bool:
        return bench.api.delete(f"/runs/{name}").status_code in {204, 404}

    wait_until(gone, seconds=SECONDS, what=f"the end of {name}'s rows")


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _table(times: Sequence[Times]) -> str:
    """Milliseconds from the submission until each step was done; then what the steps themselves took (p50)."""
    lines = [f"{len(times)} runs of 2 workers, ms after the submission began", ""]
    lines.append(f"{'':10}{'p50':>8}{'p95':>8}{'longest':>9}{'step, p50':>11}")
    before = [0.0] * len(times)
    for field in fields(Times):
        moments = [getattr(each, field.name) for each in times]
        took = [moment - earlier for moment, earlier in zip(moments, before, strict=True)]
        figures = (percentile(moments, 0.5), percentile(moments, 0.95), max(moments), percentile(took, 0.5))
        lines.append(
            f"{field.name:10}"
            + "".join(f"{_ms(f):>{w}}" for f, w in zip(figures, (8, 8, 9, 11), strict=True))
        )
        before = moments
    return "\n".join(lines)
