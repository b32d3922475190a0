"""The lemon score: how much the failures of attempts speak against a machine. What scores is used last, never refused.

Failures fade, so a machine that was mended comes back by itself; an operator who knows can forget them at once.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Case, DurationField, ExpressionWrapper, F, FloatField, Sum, Value, When
from django.db.models.functions import Extract, Power

from common.clock import database_now
from machines.models import Machine
from machines.services import machine_changed
from runs.gang.blame import fault_of, fault_words
from runs.models import MachineFailure, Run
from runs.states import Fault
from tenancy.access import Actor

WEIGHTS: Mapping[str, float] = {
    Fault.LOST: 1.0,
    Fault.DEVICE: 1.0,
    Fault.NETWORK: 0.5,
    Fault.HUNG: 0.5,
    Fault.SLOW: 0.5,
    Fault.PREPARE: 0.25,
    Fault.PROGRAM: 0.1,
}
"""How much one run's failures of a kind count: a program's own errors follow it from machine to machine, and an image
that doesn't exist is missing everywhere."""
HALF_LIFE = timedelta(days=3)
KEPT = timedelta(days=30)
LEMON_FROM = 0.5
"""A score from which on a machine is used last."""
WORST_TIER = 8.0


@dataclass(frozen=True, slots=True)
class Counted:
    """A failure with what it counts now."""

    failure: MachineFailure
    counts: float


@transaction.atomic(savepoint=False)
def failures_note(run: Run, machine_ids: Iterable[int], reason: Mapping[str, Any], now: datetime) -> None:
    """An attempt of the run ended for this reason, and these machines are to be avoided for it."""
    kind = fault_of(reason)
    if kind is None:
        return
    # Workers that start on their own are runs of their own, and count as the one that people see.
    there = {"run_id": run.shown_id, "kind": kind}
    told = {"at": now, "text": fault_words(reason)}
    named = {"workspace_id": run.workspace_id, "run_name": run.name, "times": 0}
    ids = set(machine_ids)
    new = (MachineFailure(machine_id=each, **there, **told, **named) for each in sorted(ids))
    MachineFailure.objects.bulk_create(new, ignore_conflicts=True)
    MachineFailure.objects.filter(machine__in=ids, **there).update(times=F("times") + 1, **told)


def failures_counted(machines: Collection[Machine], now: datetime) -> dict[int, list[Counted]]:
    """By machine id, the newest first, of those that have any."""
    noted = MachineFailure.objects.filter(machine__in=machines, at__gt=now - KEPT)
    fresh = noted.select_related("run__cluster").defer("run__document", "run__submitted", "run__explanation")
    found: dict[int, list[Counted]] = defaultdict(list)
    for each in fresh:
        found[each.machine_id].append(
            Counted(each, WEIGHTS[each.kind] * 0.5 ** ((now - each.at) / HALF_LIFE))
        )
    return found


def lemon_score(failures: Iterable[Counted]) -> float:
    return sum(each.counts for each in failures)


def lemon_tiers(cluster_id: int, now: datetime) -> dict[int, float]:
    """Machine id → score, of the cluster's lemons. Rounded down to a power of two: between machines that are about
    as bad, placement has better reasons to choose, and each further step is a further search."""
    weight = Case(*(When(kind=kind, then=Value(each)) for kind, each in WEIGHTS.items()), default=Value(0.0))
    age = ExpressionWrapper(Value(now) - F("at"), output_field=DurationField())
    halvings = Extract(age, "epoch") / Value(HALF_LIFE.total_seconds())
    counts = ExpressionWrapper(weight * Power(Value(0.5), halvings), output_field=FloatField())
    there = MachineFailure.objects.filter(machine__cluster=cluster_id, machine__removed_at=None)
    fresh = there.filter(at__gt=now - KEPT, at__lte=now).order_by()
    scores = fresh.values_list("machine").annotate(score=Sum(counts)).filter(score__gte=LEMON_FROM)
    return {machine: _tier(score) for machine, score in scores}


def _tier(score: float) -> float:
    return min(WORST_TIER, 2.0 ** math.floor(math.log2(score)))


@transaction.atomic
def failures_forget(*, machine: Machine, actor: Actor) -> int:
    """The machine starts anew, as one that was mended; returns how many failures are forgotten."""
    count, _ = MachineFailure.objects.filter(machine=machine).delete()
    if count:
        machine_changed(machine, actor, "forget_failures", {"failures": count}, None)
    return count


def failures_prune() -> None:
    MachineFailure.objects.filter(at__lte=database_now() - KEPT).delete()
