"""Deletes a run: at once where nothing of it runs, else once it has stopped."""

from runs import services
from runs.gang.apply import run_advance
from runs.models import Run
from runs.states import RunState
from tenancy.access import Actor


def run_delete_now(*, run: Run, actor: Actor) -> bool:
    """As `run_delete`, which sweeps and barriers carry out. Returns whether it is gone already."""
    services.run_delete(run=run, actor=actor)
    if run.state == RunState.PENDING:  # nothing of it runs: it can go at once
        run_advance(run.id)
    return services.run_remove(run.id)
