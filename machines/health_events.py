"""What agents tell of changes in health: kept as it came, once each."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from common.clock import database_now
from machines.models import HealthEvent, Machine
from wire import machine_facts as wire

KEPT = timedelta(days=180)


def health_events_store(machine: Machine, events: Iterable[wire.HealthEvent], skew: timedelta) -> None:
    """Stores those that are new. `skew` is added to the agent's times, which are never later than now."""
    told = {event.id: event for event in events}
    known = HealthEvent.objects.filter(machine=machine, event_id__in=told)
    for event_id in known.values_list("event_id", flat=True):
        del told[event_id]
    now = database_now()
    HealthEvent.objects.bulk_create(
        HealthEvent(
            machine=machine,
            event_id=event.id,
            at=min(datetime.fromtimestamp(event.at, UTC) + skew, now),
            subject=event.subject,
            name=event.name,
            was=event.was,
            health=event.health,
            evidence=event.evidence,
        )
        for event in told.values()
    )


def health_events_prune() -> None:
    """An agent tells its newest events for as long as it runs; what is removed here is told again only by one that has
    had no change of health in half a year, and then removed again."""
    HealthEvent.objects.filter(at__lt=database_now() - KEPT).delete()
