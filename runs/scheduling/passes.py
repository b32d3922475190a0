"""The scheduling pass: one at a time per cluster, over all waiting runs in order.

Load (snapshot, plan) → decide (placement/policy) → apply (each run in a transaction of its own). A pass that was
nudged while another ran is not lost: the dirty flag is cleared before loading and looked at again afterwards.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction
from django.db.models import F
from django.dispatch import receiver

from common.clock import database_now
from common.nudge import attempt, client, task_send
from machines.models import Cluster
from machines.signals import cluster_changed
from placement import Placement
from placement.policy import Cycle, Job, Patient, Placed, Refused
from runs.models import Reservation, Run
from runs.scheduling.apply import placement_apply
from runs.scheduling.notes import Notes, set_aside
from runs.scheduling.planning import Plan, plan_load, waiting_runs
from runs.scheduling.ports import NoPort
from runs.scheduling.preemption import claims_drop, preemption_apply
from runs.scheduling.records import record_open
from runs.scheduling.snapshot import Loaded, cluster_snapshot
from runs.scheduling.usage import usage_charge_due, usage_of

log = logging.getLogger(__name__)

LOCK_SPACE = 0x41737472
"""First key of the advisory locks, so that nobody else's numbers clash with ours ("Astr")."""
PASSES_AT_ONCE = 5
"""How often a pass follows another at once because the cluster changed meanwhile; then the sweep takes over."""


@receiver(cluster_changed)
def cluster_nudge(cluster_id: int, **_: Any) -> None:
    """Has a pass look at the cluster once the transaction is committed."""
    transaction.on_commit(lambda: _nudge_now(cluster_id))


def _nudge_now(cluster_id: int) -> None:
    from runs import tasks

    newly = attempt(client().set, _dirty_key(cluster_id), "1", nx=True, ex=60)
    if newly:  # otherwise a pass is on its way already
        task_send(tasks.cluster_place, cluster_id, expires=30)


def _dirty_key(cluster_id: int) -> str:
    return f"astraeus:dirty:{cluster_id}"


def clusters_sweep() -> None:
    """Every cluster with runs that wait: a lost nudge costs seconds."""
    from runs import tasks

    for cluster_id in Run.objects.waiting().values_list("cluster_id", flat=True).distinct():
        task_send(tasks.cluster_place, cluster_id, expires=10)


def cluster_place(cluster_id: int) -> None:
    """Passes over the cluster until nothing has changed while it was looked at."""
    for _ in range(PASSES_AT_ONCE):
        with cluster_lock(cluster_id) as mine:
            if not mine:
                return  # whoever has the lock looks at the flag when it is through
            attempt(client().delete, _dirty_key(cluster_id))
            cluster_pass(cluster_id)
        if not attempt(client().exists, _dirty_key(cluster_id)):
            return


@contextmanager
def cluster_lock(cluster_id: int) -> Iterator[bool]:
    """The cluster's advisory lock, held by a transaction of its own: it ends with its connection."""
    holder = connections.create_connection("default")
    try:
        holder.set_autocommit(False)
        with holder.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [LOCK_SPACE, cluster_id])
            row = cursor.fetchone()
        yield bool(row[0])
    finally:
        holder.rollback()
        holder.close()


def cluster_pass(cluster_id: int) -> None:
    """One pass. The caller holds the cluster's lock."""
    now = database_now()
    Cluster.objects.filter(id=cluster_id).update(pass_no=F("pass_no") + 1, passed_at=now)
    cluster = Cluster.objects.get(id=cluster_id)
    waiting = waiting_runs(cluster, now)
    if not waiting:
        Reservation.objects.filter(cluster=cluster).delete()
        return
    loaded = cluster_snapshot(cluster)
    plan = plan_load(cluster, waiting, loaded.names, now)
    runs = {run.id: run for run in waiting}
    for key, error in plan.broken.items():
        set_aside(runs[key], error)
    usage_charge_due(cluster, now)
    cycle = plan.cycle(loaded.snapshot, usage_of(cluster, now), now)
    _Pass(cluster, loaded, plan, cycle, Notes(cluster, runs, loaded.names, now)).run()


class _Pass:
    """Asks the cycle about one run after the other and carries out what it says."""

    def __init__(self, cluster: Cluster, loaded: Loaded, plan: Plan, cycle: Cycle, notes: Notes) -> None:
        self.cluster = cluster
        self.loaded = loaded
        self.plan = plan
        self.cycle = cycle
        self.notes = notes
        self.record = record_open(cluster, loaded.snapshot, notes.now)

    def run(self) -> None:
        for job in self.plan.jobs:
            if job.claims:
                self.record.step_claim(job.key, job.claims)
        for job in self.cycle.order():
            try:
                self._one(job)
            except Exception as error:  # one run that can't be judged must not stop the others
                log.exception("run %s could not be judged", job.key)
                set_aside(self.notes.runs[job.key], error)
        for key, reason in self.plan.lacking.items():
            self.notes.lacks(self.notes.runs[key], reason)
        self.notes.write(self.record, self.cycle.reserved)

    def _one(self, job: Job) -> None:
        claimed = self.cycle.claims_of(job)
        decision = self.cycle.judge(job)
        if isinstance(decision, Placed):
            self._place(job, decision)
        else:
            self._wait(job, decision)
        # Those that come after are judged beside what the cycle holds for this run, whatever became of it elsewhere.
        if self.cycle.claims_of(job) != claimed:
            self.record.step_claim(job.key, self.cycle.claims_of(job))

    def _wait(self, job: Job, decision: Patient | Refused) -> None:
        self.notes.waits(job, decision, self.record)
        if isinstance(decision, Patient):
            return
        if job.claims and not decision.making_room:
            claims_drop(job.key)
        if decision.preemption:
            # When a victim has changed meanwhile, nobody is asked to leave; the next pass decides anew.
            preemption_apply(self.notes.runs[job.key], decision.preemption, self.cluster)
        if decision.reserved:
            self.record.step_reserve(job.key, decision.reserved.machines, decision.reserved.at)

    def _place(self, job: Job, decision: Placed) -> None:
        run = self.notes.runs[job.key]
        try:
            if self._apply(run, decision.placement):
                self.record.decision(job.key, decision.request, decision.placement, placed=True)
                self.record.step_take(decision.placement)
                self.cycle.took(job, decision.placement)
        except NoPort as missing:
            self.notes.no_port(job, decision, missing, self.record)

    def _apply(self, run: Run, placement: Placement) -> bool:
        document = self.plan.documents[run.id]
        return placement_apply(run, document, placement, self.loaded.versions, self.cluster)
