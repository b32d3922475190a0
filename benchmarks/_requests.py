"""The requests that the placement benchmark asks: each one makes every rule work, and no two are alike."""

from collections.abc import Sequence
from random import Random
from typing import Any

from benchmarks._fleet import GIB, GPUS, POOLS, ZONES, Fleet, Zone
from placement import GroupRequest, Request, Selection

_RESERVED, _WITH_IMAGE, _EXCLUDED, _LEMONS = 200, 200, 8, 4
"""Machines reserved for runs that go first, that have an image already, that a request leaves out, that it avoids."""
_IMAGES = 12
"""That runs use; each is on its own machines."""


class Requests:
    """An endless, fixed sequence of requests about one fleet.

    The machines reserved by a pass are the same for all its runs, and those that have an image for all that use it;
    everything else is drawn for each request.
    """

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - a fixed sequence is the point
        self.names = [machine.name for machine in fleet.machines]
        self.reserved = self._some(_RESERVED)
        self.images = [self._some(_WITH_IMAGE) for _ in range(_IMAGES)]

    def gang(self, machines: int, **together: Any) -> Request:
        """So many whole machines, with a value for every field that has a rule.

        `together`: where they must stand, in fields of GroupRequest; drawn where it is not given.
        """
        random = self.random
        zone = random.choice([zone for zone in ZONES if zone.fabric])
        group = GroupRequest(
            gpus=machines * GPUS,
            machines=machines,
            models=frozenset({zone.model}),
            healthy_only=True,
            min_memory_bytes=random.choice((40, 64, 80)) * GIB,
            cpu_millicores_per_gpu=random.choice((8_000, 10_000, 12_000)),
            memory_bytes_per_gpu=random.choice((96, 128, 160)) * GIB,
            interconnect=_interconnect(random, zone),
            min_gbps=random.choice((100, zone.gbps)),
            selection=self._selection(zone),
            drives=frozenset(random.choice((("datasets",), ("scratch",), ("datasets", "scratch")))),
            **(together or _together(random, machines)),
        )
        return self._request(group)

    def small(self, gpus: int) -> Request:
        """One machine's worth or less of any model, as most runs of a queue are."""
        random = self.random
        zone = random.choice(ZONES)
        group = GroupRequest(
            gpus=gpus,
            machines=1,
            models=frozenset({zone.model}) if random.random() < 0.8 else frozenset(),
            healthy_only=random.random() < 0.5,
            cpu_millicores_per_gpu=random.choice((4_000, 8_000, 12_000)),
            memory_bytes_per_gpu=random.choice((64, 128, 160)) * GIB,
            selection=self._selection(zone),
        )
        return self._request(group)

    def _selection(self, zone: Zone) -> Selection:
        return Selection(
            pools=frozenset({zone.pool, self.random.choice(POOLS)}),
            match_labels={"tier": "gold"},
            exclude_machines=self._some(_EXCLUDED),
        )

    def _request(self, group: GroupRequest) -> Request:
        lemons = {name: self.random.choice((0.5, 1.0, 2.0)) for name in self._sample(_LEMONS)}
        return Request(
            (group,),
            allowed_pools=frozenset(POOLS),
            occupied=self._some(1),
            avoid=lemons if self.random.random() < 0.25 else {},  # it failed before
            prefer=self.random.choice(self.images),
            reserved=self.reserved,
            over_cap=frozenset({"small"}),
            guaranteed_to_others=frozenset({"small"}),
        )

    def _some(self, count: int) -> frozenset[str]:
        return frozenset(self._sample(count))

    def _sample(self, count: int) -> Sequence[str]:
        return self.random.sample(self.names, min(count, len(self.names) // 10))


def _interconnect(random: Random, zone: Zone) -> Any:
    return "rdma" if zone.link == "ethernet" else random.choice(("infiniband", "infiniband", "rdma"))


def _together(random: Random, machines: int) -> dict[str, Any]:
    """One fabric mostly; small gangs one rack now and then, or machines in different racks."""
    drawn = random.random()
    if machines <= 4 and drawn < 0.25:
        return {"keep_within": "rack"}
    if machines <= 4 and drawn < 0.35:
        return {"keep_within": "fabric", "spread": "rack"}
    return {"keep_within": "fabric"}
