"""Celery tasks of machines: one line each, idempotent."""

from celery import shared_task

from machines import channel, services, silence


@shared_task
def machines_sweep_silent() -> None:
    silence.machines_sweep_silent()


@shared_task
def machines_wake_lagging() -> None:
    services.machines_wake_lagging()


@shared_task
def two_agents_forget() -> None:
    channel.two_agents_forget()
