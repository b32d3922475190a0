"""Celery tasks of runs: one line each, idempotent, each also run by a sweep."""

from celery import shared_task

from runs import draining, lemons, reports, services
from runs.gang import apply
from runs.scheduling import passes, retention


@shared_task
def cluster_place(cluster_id: int) -> None:
    passes.cluster_place(cluster_id)


@shared_task
def clusters_sweep() -> None:
    passes.clusters_sweep()


@shared_task
def run_advance(run_id: int) -> None:
    apply.run_advance(run_id)


@shared_task
def attempts_sweep() -> None:
    apply.attempts_sweep()


@shared_task
def assignments_sweep_lost() -> None:
    reports.assignments_sweep_lost()


@shared_task
def run_remove(run_id: int) -> None:
    services.run_remove(run_id)


@shared_task
def runs_sweep_deleted() -> None:
    services.runs_sweep_deleted()


@shared_task
def drains_sweep() -> None:
    draining.drains_sweep()


@shared_task
def records_sweep() -> None:
    retention.records_sweep()


@shared_task
def failures_prune() -> None:
    lemons.failures_prune()
