"""`./dev bench policy`: days of work on a simulated cluster under our policy and under two simple ones.

The same submissions, machines and quotas under each: `strict_fifo` lets the first run that lacks room hold up all
later ones; `greedy` starts whatever fits, by submission, and reserves nothing; `ours` is the console's pass. Time is
virtual, and the same seed gives the same figures on every machine.

`utilisation`: GPU-seconds of work that was not thrown away by a preemption, of all that the cluster had until the
last submission. Waits go from the submission to the first start, in seconds, by size: runs within one machine, gangs
of 2 to 8, large gangs of 16 to 64 machines.
"""

import argparse
import json
from collections.abc import Sequence
from typing import Any

from benchmarks._common import percentile
from benchmarks._load import DAY, cluster, shares, submissions
from benchmarks._policies import greedy, ours, strict_fifo
from benchmarks._simulation import History, Simulation, Submission
from placement import Snapshot

POLICIES = {"ours": ours, "strict_fifo": strict_fifo, "greedy": greedy}
SIZES = {"one_machine": range(1, 2), "gang": range(2, 16), "large": range(16, 1000)}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench policy", description="Our policy against strict FIFO and FIFO without reservations."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--days", type=float, default=4.0, help="days of submissions (4)")
    parser.add_argument("--busy", type=float, default=0.9, help="what they ask for, of the cluster (0.9)")
    parser.add_argument("--seed", type=int, default=1, help="of the submissions (1)")
    options = parser.parse_args(argv)
    snapshot = cluster()
    work = submissions(snapshot, options.days, options.busy, options.seed)
    figures: dict[str, Any] = {
        "days": options.days,
        "machines": len(snapshot.names),
        "runs": len(work),
        "asked_of_cluster": options.busy,
    }
    for name, policy in POLICIES.items():
        history = Simulation(snapshot, work, shares(), policy()).run()
        figures[name] = outcome(snapshot, history, options.days * DAY)
    print(json.dumps(figures) if options.json else table(figures))
    return 0


def outcome(snapshot: Snapshot, history: History, until: float) -> dict[str, Any]:
    gpus = int(snapshot.topology.gpus_total.sum())
    starts = history.first_starts()
    waits = {
        size: [
            starts[each.key] - each.at
            for each in history.submissions.values()
            if _started(starts, each, machines)
        ]
        for size, machines in SIZES.items()
    }
    return {
        "utilisation": round(_used(history, until) / (gpus * until), 4),
        "wait_mean_s": {size: round(sum(each) / max(1, len(each))) for size, each in waits.items()},
        "wait_95_s": {size: round(percentile(each, 0.95)) if each else 0 for size, each in waits.items()},
        "preempted": sum(stay.preempted for stay in history.stays),
        "unstarted": len(history.unstarted),
    }


def _started(starts: dict[int, float], submission: Submission, machines: range) -> bool:
    return submission.key in starts and submission.machines in machines


def _used(history: History, until: float) -> float:
    """GPU-seconds until then of attempts that were not preempted."""
    return sum(
        history.submissions[stay.key].gpus * max(0.0, min(stay.end, until) - stay.start)
        for stay in history.stays
        if not stay.preempted
    )


def table(figures: dict[str, Any]) -> str:
    said = f"{figures['runs']} runs in {figures['days']:g} days on {figures['machines']} machines of 8 GPUs"
    heads = "".join(f"{name:>16}" for name in ("one machine", "gang", "large"))
    lines = [
        f"{said}, {figures['asked_of_cluster']:.0%} of it asked for; waits in minutes, mean / 95 % of the runs",
        "",
        f"{'':14}{'utilisation':>12}{heads}{'preempted':>11}{'unstarted':>11}",
    ]
    for name in POLICIES:
        each = figures[name]
        waits = "".join(
            f"{each['wait_mean_s'][size] / 60:>8.0f} / {each['wait_95_s'][size] / 60:<5.0f}" for size in SIZES
        )
        lines.append(
            f"{name:14}{each['utilisation']:>12.1%}{waits}{each['preempted']:>11}{each['unstarted']:>11}"
        )
    return "\n".join(lines)
