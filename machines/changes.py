"""Removes what triggers noted of changed machines (`MachineChange`) once no reader needs it any more."""

from datetime import timedelta

from common.clock import database_now
from machines.models import MachineChange

KEPT = timedelta(minutes=10)
"""Readers load everything anew each minute. A transaction that stays open for longer than this is seen then."""


def changes_prune() -> None:
    MachineChange.objects.filter(at__lt=database_now() - KEPT).delete()
