"""The map's view for one run: which machines fit it, which it was given, and why not the others."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from common.errors import NotFound
from console.pages.machine_cells import CHOSEN, FITS, UNJUDGED
from console.pages.machine_tiles import Mark
from console.pages.scope import Scope
from runs.explaining.rows import MachineRow
from runs.explaining.view import CHOSEN as CHOSEN_TITLE
from runs.explanations import explanation_in_rows
from runs.models import Assignment, Run
from runs.presentation import run_find

NOT_JUDGED = Mark(UNJUDGED, "the next pass does within seconds")


@dataclass(frozen=True, slots=True)
class ForRun:
    """`key` is how the address names it: `<workspace>/<run>`."""

    key: str
    run: Run
    headline: str
    marks: Mapping[str, Mark]
    """By machine."""

    def mark(self, machine: str) -> Mark:
        return self.marks.get(machine, NOT_JUDGED)


def for_run(scope: Scope, key: str) -> ForRun | None:
    """None when no run was named. Raises NotFound for one that the reader may not see, or of another cluster."""
    if not key:
        return None
    slug, _, name = key.partition("/")
    workspaces = (each for each in scope.workspaces if each.organization_id == scope.organization.id)
    workspace = next((each for each in workspaces if each.slug == slug), None)
    if workspace is None:
        raise NotFound
    run = run_find(workspace=workspace, name=name, cluster=scope.cluster_slug)
    told = explanation_in_rows(run)
    # Where it runs counts more than what the pass that placed it has said, and is known when that is not kept.
    return ForRun(key, run, told["headline"], _marks(told["machines"]) | _held(run))


def _marks(rows: Iterable[MachineRow]) -> dict[str, Mark]:
    """Of several groups of workers one may fit where another doesn't: the best mark stays."""
    marks: dict[str, Mark] = {}
    for row in rows:
        kind = CHOSEN if row.group == CHOSEN_TITLE else "" if row.codes else FITS
        mark = Mark(kind, row.text)
        for machine in row.machines:
            known = marks.get(machine)
            if known is None or not known.kind:
                marks[machine] = mark
    return marks


def _held(run: Run) -> dict[str, Mark]:
    workers = Assignment.objects.held().filter(attempt__run__in=[run, *run.children.all()])
    named = workers.order_by("worker__rank").values_list("machine__name", "worker__name")
    return {machine: Mark(CHOSEN, f"runs {worker}") for machine, worker in named}
