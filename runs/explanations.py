"""Why a run waits, as data and sentences: for the API, the command line and the pages alike."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from machines.models import Machine
from placement import words
from runs.models import Allocation, Run
from runs.presentation import run_reason
from runs.states import RunState

Data = Mapping[str, Any]

HELD_BY_OTHERS = "another workspace"
"""What one may not see is neither named nor counted."""


def explanation_of(run: Run) -> dict[str, Any]:
    """The last pass's answer: headline, domains, machines; with the pass's number and time."""
    base = {
        "run": run.name,
        "state": run.state,
        "headline": run_reason(run),
        "pass": run.explained_pass,
        "at": run.explained_at,
    }
    if run.state != RunState.PENDING or not run.explanation:
        return {**base, "domains": [], "machines": []}
    data = run.explanation
    return {
        **base,
        "cause": data["cause"],
        "domains": data["domains"],
        "machines": machine_rows(run, data),
    }


def machine_rows(run: Run, data: Data) -> list[dict[str, Any]]:
    """The machines, nearest first; those about which the same is to be said share a row."""
    holders = _holders(run, data["rows"])
    rows = []
    for row in data["rows"]:
        for machines, names in _same_holders(row, holders):
            main = row["codes"][0] if row["codes"] else ""
            rows.append(
                {
                    "group": words.GROUP_TITLES[main],
                    "codes": row["codes"],
                    "numbers": row["numbers"],
                    "machines": machines,
                    "text": words.machine_sentence(row, data["asked"], names),
                }
            )
    return rows


def _same_holders(
    row: Data, holders: Mapping[str, tuple[str, ...]]
) -> list[tuple[list[str], tuple[str, ...]]]:
    """The row's machines, divided by who holds what is missing there."""
    divided: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for machine in row["machines"]:
        divided[holders.get(machine, ())].append(machine)
    return [(machines, names) for names, machines in divided.items()]


def _holders(run: Run, rows: Iterable[Data]) -> dict[str, tuple[str, ...]]:
    """Machine → who holds GPUs there, by name where the run's workspace may see it, with the latest end known."""
    busy = [machine for row in rows if "gpus_busy" in row["codes"] for machine in row["machines"]]
    if not busy:
        return {}
    machines = Machine.objects.filter(cluster=run.cluster_id, name__in=busy)
    held = (
        Allocation.objects.filter(machine__in=machines, released_at=None, gpu__isnull=False)
        .values_list(
            "machine__name",
            "assignment__attempt__run__name",
            "assignment__attempt__run__workspace_id",
            "assignment__attempt__opened_at",
            "assignment__launch__time_limit_seconds",
        )
        .distinct()
    )
    found: dict[str, set[str]] = defaultdict(set)
    for machine, name, workspace, opened, limit in held:
        who = name if workspace == run.workspace_id else HELD_BY_OTHERS
        found[machine].add(who + _until(opened, limit))
    return {machine: tuple(sorted(names)) for machine, names in found.items()}


def _until(opened: datetime | None, limit: int | None) -> str:
    """ " (until 14:05 UTC at the latest)", where a time limit says so."""
    if opened is None or limit is None:
        return ""
    return f" (until {opened + timedelta(seconds=limit):%H:%M} UTC at the latest)"
