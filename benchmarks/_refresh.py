"""How long the process's snapshot of a cluster takes to catch up with changes in a real PostgreSQL."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from random import Random
from statistics import median

import django
from django.db import connection
from django.utils import timezone

from benchmarks._fleet import Fleet
from benchmarks._measure import timed

CHANGES = 100


@contextlib.contextmanager
def _database() -> Iterator[None]:
    """A migrated, empty database beside the one of Django's settings, gone afterwards."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    django.setup()
    before = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(before, verbosity=0)


def refresh_ms(fleet: Fleet, rounds: int) -> float:
    """The median of refreshing after 100 changes, each committed on its own and on another machine."""
    with _database():
        from benchmarks._clusters import cluster_fill
        from runs.scheduling.snapshot import cluster_snapshot

        cluster = cluster_fill(fleet)
        random = Random(1)  # noqa: S311 - a fixed sequence is the point
        snapshot = cluster_snapshot(cluster).snapshot
        assert snapshot.names == tuple(machine.name for machine in fleet.machines)
        times = []
        for _ in range(rounds):
            _change(random.sample(snapshot.topology.ids.tolist(), CHANGES))
            took, loaded = timed(lambda: cluster_snapshot(cluster))
            assert loaded.snapshot is not snapshot, "the changes were not seen"
            snapshot = loaded.snapshot
            times.append(took)
    return median(times)


def _change(machines: Sequence[int]) -> None:
    """What happens to a busy cluster: half are runs that end, the rest cordons, GPUs and ports."""
    from machines.models import Gpu, Machine, RdmaPort
    from machines.states import Health
    from runs.models import Allocation

    for number, machine in enumerate(machines):
        match number % 10:
            case 0 | 1:
                Machine.objects.filter(id=machine).update(cordoned_at=timezone.now())
            case 2 | 3:
                Gpu.objects.filter(machine=machine, index=number % 8).update(health=Health.SUSPECT)
            case 4:
                RdmaPort.objects.filter(machine=machine, port=1, device="mlx5_0").update(state="DOWN")
            case _:
                Allocation.objects.filter(machine=machine, released_at=None).update(
                    released_at=timezone.now()
                )
