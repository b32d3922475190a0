"""Celery tasks of machines: one line each, idempotent."""

from celery import shared_task

from machines import changes, channel, fabrics, health_events, overrides, services, silence


@shared_task
def machines_sweep_silent() -> None:
    silence.machines_sweep_silent()


@shared_task
def machines_wake_lagging() -> None:
    services.machines_wake_lagging()


@shared_task
def two_agents_forget() -> None:
    channel.two_agents_forget()


@shared_task
def changes_prune() -> None:
    changes.changes_prune()


@shared_task
def fabrics_sweep() -> None:
    fabrics.fabrics_sweep()


@shared_task
def health_events_prune() -> None:
    health_events.health_events_prune()


@shared_task
def health_overrides_expire() -> None:
    overrides.health_overrides_expire()
