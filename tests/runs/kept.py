"""What tests of the kept snapshot share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest
from django.db import connections

from machines.models import Machine
from runs.scheduling import snapshot
from runs.scheduling.snapshot import Loaded, cluster_load, cluster_snapshot
from tests import factories
from tests.factories import House
from tests.placement.same import assert_same
from tests.support.gangs import placed


@dataclass(frozen=True)
class World:
    house: House
    fleet: list[Machine]


def world_make(house: House, machines: list[Machine]) -> World:
    """Both machines (rack r1, ib-a), all held by a run, one more in r2 on ib-b, and one without RDMA."""
    placed(house)
    third = factories.machine_make(house, "gpu-03", fabric="ib-b", rack="r2")
    return World(house, [*machines, third, factories.machine_make(house, "gpu-04", fabric=None, rack=None)])


def keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_kept", snapshot._Caches())


def only_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever changes, nothing is read anew: it must be seen by its note."""
    monkeypatch.setattr(snapshot, "PATCH_SHARE", 10)
    monkeypatch.setattr(snapshot, "WHOLE_FOR", timedelta(hours=1))


def now(house: House) -> Loaded:
    """The kept snapshot, brought up to date; it is as one that is read anew."""
    kept, anew = cluster_snapshot(house.cluster), cluster_load(house.cluster)
    assert_same(kept.snapshot, anew.snapshot)
    assert (kept.versions, kept.names) == (anew.versions, anew.names)
    return kept


def stale(house: House) -> bool:
    """Whether the kept snapshot lags behind the rows."""
    try:
        now(house)
    except AssertionError:
        return True
    return False


@contextmanager
def elsewhere() -> Iterator[Callable[..., None]]:
    """A transaction on a connection of its own that is open until the end, then committed: yields its `execute`."""
    other = connections.create_connection("default")
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            yield cursor.execute
        other.commit()
    finally:
        other.close()
