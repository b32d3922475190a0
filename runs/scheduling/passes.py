"""The scheduling pass: one at a time per cluster, over all waiting runs in order.

Load (snapshot) → decide (placement/) → apply (each run in a transaction of its own). A pass that was nudged
while another ran is not lost: the dirty flag is cleared before loading and looked at again afterwards.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import connections, transaction
from django.db.models import F, Q, QuerySet
from django.dispatch import receiver

from common.clock import database_now
from common.nudge import attempt, client, task_send
from machines.models import Cluster
from machines.signals import cluster_changed
from placement import Placement, Refusal, place
from runs.events import run_announce
from runs.models import Run
from runs.scheduling.apply import placement_apply
from runs.scheduling.patience import patience_holds
from runs.scheduling.ports import NoPort
from runs.scheduling.request import pools_allowed, request_of
from runs.scheduling.snapshot import Loaded, cluster_load
from runs.states import RunState
from wire.spec import RunDocument, validate_document

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
    Cluster.objects.filter(id=cluster_id).update(pass_no=F("pass_no") + 1, passed_at=database_now())
    cluster = Cluster.objects.get(id=cluster_id)
    runs = list(_queue(cluster))
    if not runs:
        return
    _Pass(cluster, cluster_load(cluster)).run(runs)


def _queue(cluster: Cluster) -> QuerySet[Run]:
    due = Q(not_before=None) | Q(not_before__lte=database_now())
    waiting = Run.objects.waiting().filter(due, cluster=cluster).select_related("workspace", "cluster")
    return waiting.order_by("-priority", F("restarts").desc(), "queued_at", "id")


class _Pass:
    """The cluster as this pass sees it: what it places is taken from the runs that come after."""

    def __init__(self, cluster: Cluster, loaded: Loaded) -> None:
        self.cluster = cluster
        self.loaded = loaded
        self.snapshot = loaded.snapshot
        self.pools: dict[int, frozenset[str]] = {}
        self.now = database_now()
        self.unchanged: list[int] = []

    def run(self, runs: list[Run]) -> None:
        for run in runs:
            try:
                self._one(run)
            except Exception as error:  # one run that can't be judged must not stop the others
                log.exception("run %s could not be judged", run.id)
                _set_aside(run, error)
        _still_refused(self.unchanged, self.cluster.pass_no, self.now)

    def _one(self, run: Run) -> None:
        document = validate_document(run.document)
        request = request_of(run, document, self._pools(run), self.loaded.names)
        outcome = place(self.snapshot, request)
        if isinstance(outcome, Refusal):
            self._refuse(run, outcome)
        elif held := patience_holds(run, document, self.snapshot, request, outcome, self.now):
            self._hold(run, held)
        else:
            self._place(run, document, outcome)

    def _place(self, run: Run, document: RunDocument, placement: Placement) -> None:
        try:
            if placement_apply(run, document, placement, self.loaded.versions, self.cluster):
                self.snapshot = self.snapshot.take(placement)
        except NoPort as missing:
            self._hold(run, {"code": "no_port", "machine": missing.machine, "port": missing.port})

    def _pools(self, run: Run) -> frozenset[str]:
        if run.workspace_id not in self.pools:
            self.pools[run.workspace_id] = pools_allowed(run.workspace_id, self.cluster.id)
        return self.pools[run.workspace_id]

    def _hold(self, run: Run, reason: dict[str, Any]) -> None:
        Run.objects.filter(id=run.id, state=RunState.PENDING).update(
            patient_since=run.patient_since or self.now,
            explanation=None,
            explained_pass=self.cluster.pass_no,
            explained_at=self.now,
            set_aside="",
            reason=reason,
        )
        run_announce(run)

    def _refuse(self, run: Run, refusal: Refusal) -> None:
        data = refusal.as_data()
        if run.explanation == data and not run.set_aside:
            self.unchanged.append(run.id)
            return
        Run.objects.filter(id=run.id, state=RunState.PENDING).update(
            explanation=data,
            explained_pass=self.cluster.pass_no,
            explained_at=self.now,
            set_aside="",
            reason={"code": "waiting"},
        )
        run_announce(run)


def _still_refused(run_ids: list[int], pass_no: int, now: datetime) -> None:
    """The same answer as last time: only its age changes."""
    if run_ids:
        Run.objects.filter(id__in=run_ids).update(explained_pass=pass_no, explained_at=now)


def _set_aside(run: Run, error: Exception) -> None:
    text = f"{type(error).__name__}: {error}"[:2000]
    Run.objects.filter(id=run.id, state=RunState.PENDING).update(set_aside=text, reason={"code": "set_aside"})
    run_announce(run)
