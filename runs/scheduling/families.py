"""Workers that start on their own: no two of one run share a machine."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from runs.models import Assignment, Run

Families = Mapping[int, Mapping[int, frozenset[int]]]
"""Independent run → its child → ids of the machines on which something of that child may still be."""


def families_machines(parents: Iterable[int]) -> Families:
    """Of these independent runs."""
    found: dict[int, dict[int, frozenset[int]]] = defaultdict(lambda: defaultdict(frozenset))
    held = Assignment.objects.held().filter(attempt__run__parent__in=list(parents)).order_by()
    for parent, child, machine in held.values_list("attempt__run__parent", "attempt__run_id", "machine_id"):
        if parent is not None:
            found[parent][child] |= {machine}
    return found


def occupied_by_others(run: Run, families: Families, names: Mapping[int, str]) -> frozenset[str]:
    """Names of the machines that hold another worker of the run that `run` is a child of."""
    if run.parent_id is None:
        return frozenset()
    children = families.get(run.parent_id, {})
    machines = frozenset().union(*(held for child, held in children.items() if child != run.id))
    return frozenset(names[machine] for machine in machines if machine in names)
