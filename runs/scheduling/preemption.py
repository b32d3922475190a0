"""Stops runs in favour of another one: whole gangs, which go back to the queue; what they free is claimed."""

from django.db import IntegrityError, transaction

from machines.models import Cluster
from placement import Rank
from placement.preempt import Preemption
from runs.events import run_advance_on_commit
from runs.models import Claim, Run
from runs.reasons import SOMEBODY_S_RUN
from runs.states import RunState, Wanted
from wire.quantities import MILLI

STOPPABLE = (RunState.STARTING, RunState.RUNNING)


class _Changed(Exception):
    """A victim, or the run itself, is no longer as the pass saw it."""


def preemption_apply(run: Run, preemption: Preemption, cluster: Cluster) -> bool:
    """Asks the victims to leave and claims for `run` what they free: all of it, or nothing when something changed."""
    try:
        with transaction.atomic():
            _apply(run, preemption, cluster)
    except (_Changed, IntegrityError):
        return False
    return True


def _apply(run: Run, preemption: Preemption, cluster: Cluster) -> None:
    if not Cluster.objects.filter(id=cluster.id, pass_no=cluster.pass_no).exists():
        raise _Changed
    ids = [run.id, *preemption.victims]
    locked = list(Run.objects.select_for_update(no_key=True).filter(id__in=ids).order_by("id"))
    if len(locked) != len(ids) or not all(_as_seen(each, run) for each in locked):
        raise _Changed
    for victim in locked:
        if victim.id != run.id:
            by = run.name if victim.workspace_id == run.workspace_id else SOMEBODY_S_RUN
            Run.objects.filter(id=victim.id).update(preemption={"code": "preempted", "by": by})
    claims_drop(run.id)
    Claim.objects.bulk_create(claim for rank in preemption.placement.ranks for claim in _claims(run, rank))
    for run_id in preemption.victims:
        run_advance_on_commit(run_id)


def _as_seen(locked: Run, run: Run) -> bool:
    if locked.wanted != Wanted.RUN:
        return False
    if locked.id == run.id:
        return locked.state == RunState.PENDING and locked.edition == run.edition
    return locked.state in STOPPABLE and locked.preemption is None


def _claims(run: Run, rank: Rank) -> list[Claim]:
    amounts = {"cpu_cores": rank.cpu_millicores / MILLI, "memory_bytes": rank.memory_bytes}
    return [
        *(Claim(run=run, machine_id=rank.machine_id, gpu_id=gpu) for gpu in rank.gpu_ids),
        Claim(run=run, machine_id=rank.machine_id, **amounts),
    ]


def claims_drop(run_id: int) -> None:
    """What was claimed for the run is open to all again."""
    Claim.objects.filter(run=run_id).delete()
