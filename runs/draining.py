"""The end of a drain: what still runs on the machine goes back to the queue and starts elsewhere."""

from django.db import transaction
from django.db.models.functions import Now

from machines.models import Machine
from runs.events import run_advance_on_commit
from runs.models import Assignment, Run
from runs.states import RunState, Wanted

MOVABLE = frozenset({RunState.STARTING, RunState.RUNNING})


def drains_sweep() -> None:
    """Looks at the machines whose drain is due. Idempotent."""
    due = Machine.objects.filter(drain_until__lte=Now())
    held = Assignment.objects.held().filter(machine__in=due, attempt__run__state__in=MOVABLE)
    for run_id, machine in held.values_list("attempt__run_id", "machine__name").order_by("attempt__run_id"):
        run_move_off(run_id, machine)


@transaction.atomic
def run_move_off(run_id: int, machine: str) -> None:
    """Has the run's attempt ended and the run queued anew; counts as no restart."""
    run = Run.objects.select_for_update(no_key=True).filter(id=run_id, preemption__isnull=True).first()
    if run is None or run.wanted != Wanted.RUN or run.state not in MOVABLE:
        return
    Run.objects.filter(id=run.id).update(preemption={"code": "drained", "machine": machine})
    run_advance_on_commit(run.id)
