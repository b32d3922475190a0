"""Runs on a machine, and the other machines of each: what the map rings, and its panel tells."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Q
from django.urls import reverse

from console.pages.scope import Scope
from machines.models import Machine
from placement.phrases import and_list, plural
from runs.models import Assignment, Run

NAMES_SHOWN = 6


@dataclass(frozen=True, slots=True)
class RunBeside:
    name: str
    address: str
    others: dict[int, str]
    """Other machines that it runs on, by id; in the order of their names."""

    @property
    def ids(self) -> str:
        return " ".join(map(str, self.others))

    @property
    def words(self) -> str:
        """`gpu-01, gpu-02 and 5 other machines`; empty without any."""
        names = list(self.others.values())
        more = len(names) - NAMES_SHOWN
        told = names[:NAMES_SHOWN] + ([plural(more, "other machine")] if more > 0 else [])
        return and_list(told) if told else ""


def runs_beside(machine: Machine, scope: Scope) -> list[RunBeside]:
    """By name. What the reader may not see is neither named nor counted.

    Workers that start on their own are one run, as everywhere.
    """
    held = Assignment.objects.held().filter(attempt__run__workspace__in=scope.workspaces)
    here = held.filter(machine=machine).values_list("attempt__run_id", "attempt__run__parent_id")
    shown = {parent or run for run, parent in here}
    if not shown:
        return []
    of_them = held.filter(Q(attempt__run__in=shown) | Q(attempt__run__parent__in=shown))
    rows = of_them.order_by("machine__name").values_list(
        "attempt__run_id", "attempt__run__parent_id", "machine_id", "machine__name"
    )
    others: dict[int, dict[int, str]] = defaultdict(dict)
    for run, parent, key, name in rows:
        if key != machine.id:
            others[parent or run][key] = name
    runs = Run.objects.filter(id__in=shown).select_related("workspace__organization", "cluster")
    return [_beside(run, others[run.id]) for run in _by_name(runs)]


def _by_name(runs: Iterable[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (run.name, run.id))


def _beside(run: Run, others: dict[int, str]) -> RunBeside:
    place = (run.workspace.organization.slug, run.workspace.slug, run.cluster.slug, run.name)
    return RunBeside(run.name, reverse("run", args=place), others)
