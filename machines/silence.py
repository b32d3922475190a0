"""Machines that are not heard from. The console's own outage must never look like theirs."""

import time

from django.db import transaction
from django.db.models import F

from common.clock import database_now
from common.nudge import attempt, client
from machines.models import Machine
from machines.services import machines_seen, machines_wake, seen_key
from machines.signals import cluster_changed
from machines.states import UNREACHABLE_AFTER_SECONDS

MANY_AT_LEAST = 3
MANY_SHARE = 0.10
"""When at least max(3, 10 %) of a cluster's machines go quiet together, it is more likely us than them."""
POSTPONE_SECONDS = 600


def machines_sweep_silent() -> None:
    """Marks machines unreachable that have not been heard from for 45 s. Their next message marks them back."""
    machines = list(Machine.objects.exclude(last_seen_at=None))
    if not machines:
        return
    seen = attempt(client().mget, [seen_key(machine.id) for machine in machines])
    if seen is None:
        return  # Redis is away: nobody can have been heard, and that is not the machines' fault
    now = time.time()
    # An emptied Redis: counts as heard now.
    machines_seen((m.id for m, value in zip(machines, seen, strict=True) if value is None), now)
    silent: dict[int, list[Machine]] = {}
    for machine, value in zip(machines, seen, strict=True):
        if value is not None and now - float(value) > UNREACHABLE_AFTER_SECONDS:
            silent.setdefault(machine.cluster_id, []).append(machine)
    for cluster_id, quiet in silent.items():
        total = sum(machine.cluster_id == cluster_id for machine in machines)
        _cluster_mark(quiet, total, {m.id: float(v) for m, v in zip(machines, seen, strict=True) if v})


def _cluster_mark(quiet: list[Machine], total: int, seen: dict[int, float]) -> None:
    newly = [machine for machine in quiet if machine.unreachable_at is None]
    together = len(newly) >= max(MANY_AT_LEAST, MANY_SHARE * total)
    for machine in newly:
        silence = time.time() - seen[machine.id]
        if together and silence < UNREACHABLE_AFTER_SECONDS + POSTPONE_SECONDS:
            continue
        machine_mark_unreachable(machine)


@transaction.atomic
def machine_mark_unreachable(machine: Machine) -> None:
    changed = Machine.objects.filter(id=machine.id, unreachable_at=None).update(
        unreachable_at=database_now(), version=F("version") + 1
    )
    if changed:
        # Wakes the console's poll handlers: whatever they remembered of this machine no longer counts.
        transaction.on_commit(lambda: machines_wake([machine.id]))
        cluster_changed.send(sender=Machine, cluster_id=machine.cluster_id)


def machines_heard_after_start() -> None:
    """At a start of the console every machine counts as heard now: we were deaf, they were not silent."""
    machines_seen(Machine.objects.exclude(last_seen_at=None).values_list("id", flat=True), time.time())
