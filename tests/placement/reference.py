"""The gang once more, the naive way: every set of machines tried. For clusters of a dozen machines at most.

Shares nothing with the engine, see `reference_rules.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

from tests.placement.reference_rules import ADMISSION, INFINIBAND, LINKS, ROCE, Fabric, Rules

if TYPE_CHECKING:
    from placement import GroupRequest, MachineFacts

VERDICTS = ["one_machine", "nvlink_domain", "ib_rack", "ib_fabric", "roce_rack", "roce", "ethernet"]
"""Best first."""

ACCEPTED = {
    "any": set(VERDICTS),
    "ethernet": {"one_machine", "ethernet"},
    "rdma": {"one_machine", "ib_rack", "ib_fabric", "roce_rack", "roce"},
    "infiniband": {"one_machine", "ib_rack", "ib_fabric"},
    "nvlink": {"one_machine", "nvlink_domain"},
}

NO_QUOTAS: dict[str, Any] = {"over_cap": frozenset(), "guaranteed_to_others": frozenset()}

NO_ROOM = {
    "cluster": "too_few_machines",
    "fabric": "no_fabric_room",
    "rack": "no_rack_room",
    "nvlink_domain": "no_nvlink_room",
}
"""Level that all must share → the cause when nowhere is there enough room."""

Room = tuple[str, str, str | None, int]
"""Kind of domain, its name, the fabric on which it is counted, workers that it could take."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One machine, with all that decides about the sets it is in."""

    number: int
    name: str
    rack: str | None
    nvlink_domain: str | None
    home: Fabric | None
    up: frozenset[Fabric]
    """Fabrics that have a name and on which it has a port that is up."""
    good: frozenset[Fabric]
    """Fabrics on which it has a port that counts for RDMA."""
    lemon: float
    broken: bool
    """It is wholly free and would not be wholly used."""
    left_over: int


@dataclass(frozen=True, slots=True, order=True)
class Way:
    """One set of machines that holds a group; ordered as the engine's order of choice is written down."""

    verdict: int
    machines: int
    lemon: float
    racks: int
    broken: int
    left_over: int
    seats: int
    """Bit mask of the machines."""


class Reference(Rules):
    # Shapes and sets.

    @staticmethod
    def splits(group: "GroupRequest") -> list[tuple[int, int]]:
        """(machines, GPUs on each) that the request allows."""
        if group.gpus == 0:
            return [(group.machines or group.min_nodes or 1, 0)]
        if group.machines:
            even = group.gpus % group.machines == 0
            return [(group.machines, group.gpus // group.machines)] if even else []
        counts = range(group.min_nodes or 1, (group.max_nodes or group.gpus) + 1)
        splits = [(count, group.gpus // count) for count in counts if group.gpus % count == 0]
        return [(count, split) for count, split in splits if split >= max(group.min_per_machine, 1)]

    def shapes(self, group: "GroupRequest") -> list[tuple[int, int]]:
        """The splits that are worth trying: with an exact number of machines that one, else what the largest holds."""
        largest = max((len(machine.gpus) for machine in self.machines), default=0)
        fixed = bool(group.machines)
        return [(count, split) for count, split in self.splits(group) if fixed or split <= largest]

    def seat(self, machine: "MachineFacts", group: "GroupRequest", split: int) -> Seat:
        sound = [gpu for gpu in machine.gpus if not gpu.faulty]
        free = [gpu for gpu in sound if not gpu.held]
        return Seat(
            number=self.machines.index(machine),
            name=machine.name,
            rack=machine.rack or None,
            nvlink_domain=machine.nvlink_domain or None,
            home=self.home(machine),
            up=frozenset(self.fabrics_of(port for port in self.named_ports(machine) if port.up)),
            good=frozenset(self.fabrics_of(self.good_ports(machine, group, [INFINIBAND, ROCE]))),
            lemon=max(self.request.avoid.get(machine.name, 0.0), 0.0),
            broken=len(free) == len(sound) and len(free) > split,
            left_over=len(free) - split,
        )

    def usable(self, group: "GroupRequest", count: int, split: int) -> list[Seat]:
        """The machines that no rule refuses."""
        passing = (machine for machine in self.machines if not self.failed(machine, group, count, split))
        return [self.seat(machine, group, split) for machine in passing]

    def verdicts(self, seats: Sequence[Seat], group: "GroupRequest") -> set[str]:
        """Every accepted verdict that holds for this set of machines, `keep_within` and `spread` included."""
        if not spread_holds(seats, group):
            return set()
        holds = {"one_machine"} if len(seats) == 1 else set(_between(seats, group))
        return holds & ACCEPTED[group.interconnect]

    def ways(self, group: "GroupRequest") -> Iterator[Way]:
        """Every set of machines that may hold the group, under its best verdict."""
        for count, split in self.shapes(group):
            for seats in combinations(self.usable(group, count, split), count):
                verdicts = self.verdicts(seats, group)
                if verdicts:
                    yield Way(
                        verdict=min(map(VERDICTS.index, verdicts)),
                        machines=count,
                        lemon=max(seat.lemon for seat in seats),
                        racks=racks_spanned(seats),
                        broken=sum(seat.broken for seat in seats),
                        left_over=sum(seat.left_over for seat in seats),
                        seats=sum(1 << seat.number for seat in seats),
                    )

    def best(self, group: "GroupRequest") -> Way | None:
        """The best that the group can get alone."""
        return min(self.ways(group), default=None)

    # The gang.

    @cached_property
    def _masks(self) -> list[list[tuple[int, int]]]:
        """Per group, the one with fewest ways first: (verdict, machines) of each way."""
        every = [{(way.verdict, way.seats) for way in self.ways(group)} for group in self.request.groups]
        return sorted((sorted(masks) for masks in every), key=len)

    def feasible(self, worst: int = len(VERDICTS)) -> bool:
        """Some choice of disjoint sets holds all groups, none of them under a verdict beyond `worst`."""
        dead_ends: set[tuple[int, int]] = set()

        def fits(number: int, taken: int) -> bool:
            if number == len(self._masks):
                return True
            if (number, taken) in dead_ends:
                return False
            for verdict, seats in self._masks[number]:
                if verdict <= worst and not seats & taken and fits(number + 1, taken | seats):
                    return True
            dead_ends.add((number, taken))
            return False

        return fits(0, 0)

    def best_together(self) -> int | None:
        """The best that the worst network of any group can be; None when no choice holds all groups."""
        return next((worst for worst in range(len(VERDICTS)) if self.feasible(worst)), None)

    # Why not.

    def cause(self, group: "GroupRequest", count: int, split: int) -> str:
        """What the set lacks, for a group that fits nowhere: the first of these that is true."""
        in_turn = self.asking(reserved=frozenset())
        unbound = in_turn.asking(**NO_QUOTAS)
        admitted = [
            machine
            for machine in self.machines
            if not self.failed(machine, group, count, split) & set(ADMISSION)
        ]
        of_model = [machine for machine in admitted if self.of_model(machine, group) or not split]
        causes = {
            "no_shape": lambda: not self.shapes(group),
            "machines_reserved": lambda: in_turn.best(group),
            "pools_closed": lambda: unbound.best(group),
            "none_selected": lambda: not admitted,
            "no_model": lambda: not of_model,
            "no_spread": lambda: self._room_but_for_spread(group, count, split),
        }
        return next((cause for cause, true in causes.items() if true()), NO_ROOM[lacking_level(group, count)])

    def _room_but_for_spread(self, group: "GroupRequest", count: int, split: int) -> bool:
        seats, together = self.usable(group, count, split), replace(group, spread=None)
        rooms = self._domains(seats, together, count).values()
        return group.spread is not None and any(len(inside) >= count for inside in rooms)

    def rooms(self, group: "GroupRequest", count: int, split: int) -> list[Room]:
        """What each domain that must hold the whole group could take, domains that can take none left out."""
        kind = lacking_level(group, count)
        rooms: list[Room] = []
        for (rack, nvlink_domain, fabric), seats in self._domains(
            self.usable(group, count, split), group, count
        ).items():
            name = {
                "cluster": "",
                "rack": rack,
                "nvlink_domain": nvlink_domain,
                "fabric": fabric and fabric[1],
            }[kind]
            on_fabric = fabric[1] if fabric and kind != "fabric" else None
            rooms.append((kind, name or "", on_fabric, places(seats, group)))
        return sorted(rooms, key=str)

    def _domains(
        self, seats: Sequence[Seat], group: "GroupRequest", count: int
    ) -> dict[tuple[str | None, str | None, Fabric | None], list[Seat]]:
        """Seats by the rack, NVLink domain and fabric that all of the group must share; None where it need not."""
        levels = shared_levels(group, count)
        domains: dict[tuple[str | None, str | None, Fabric | None], list[Seat]] = {}
        for seat in seats:
            rack = seat.rack if "rack" in levels else None
            nvlink_domain = seat.nvlink_domain if "nvlink_domain" in levels else None
            fabrics: Iterable[Fabric | None] = _fabrics_for(seat, group) if "fabric" in levels else [None]
            for fabric in fabrics:
                domains.setdefault((rack, nvlink_domain, fabric), []).append(seat)
        return domains

    def asking(self, **changes: Any) -> "Reference":
        """The same cluster, asked with some fields of the request changed."""
        return Reference(self.machines, replace(self.request, **changes), self.storage)

    def emptied(self) -> "Reference":
        """The same cluster without any run, all of it sound, asked by a run that is alone and never failed."""
        alone = self.asking(
            **NO_QUOTAS, reserved=frozenset(), occupied=frozenset(), avoid={}, prefer=frozenset()
        )
        return Reference(map(sound, self.machines), alone.request, self.storage)


def sound(machine: "MachineFacts") -> "MachineFacts":
    """The machine empty, ready, with every GPU healthy and every port up."""
    return replace(
        machine,
        state=type(machine.state)["READY"],
        cpu_free_millicores=machine.cpu_millicores,
        memory_free_bytes=machine.memory_bytes,
        gpus=tuple(replace(gpu, held=False, suspect=False, faulty=False) for gpu in machine.gpus),
        ports=tuple(replace(port, up=True) for port in machine.ports),
    )


def _same(everywhere: Iterable[str | None]) -> bool:
    different = set(everywhere)
    return len(different) == 1 and None not in different


def _between(seats: Sequence[Seat], group: "GroupRequest") -> Iterator[str]:
    """Verdicts between several machines that keep within what was asked."""
    same_rack = _same(seat.rack for seat in seats)
    same_domain = _same(seat.nvlink_domain for seat in seats)
    if not {"rack": same_rack, "nvlink_domain": same_domain}.get(group.keep_within or "", True):
        return
    if group.keep_within != "fabric" or frozenset.intersection(*(seat.up for seat in seats)):
        yield "ethernet"
        if same_domain:
            yield "nvlink_domain"
    shared = {
        link
        for link, name in frozenset.intersection(*(seat.good for seat in seats))
        if name or group.keep_within != "fabric"
    }
    if INFINIBAND in shared:
        yield from ("ib_fabric", "ib_rack") if same_rack else ("ib_fabric",)
    if ROCE in shared:
        yield from ("roce", "roce_rack") if same_rack else ("roce",)


def places(seats: Sequence[Seat], group: "GroupRequest") -> int:
    """How many workers could stand on these machines: with `spread` one in each rack or on each fabric."""
    if group.spread == "rack":
        return len({seat.rack for seat in seats})
    return len({seat.home for seat in seats}) if group.spread == "fabric" else len(seats)


def spread_holds(seats: Sequence[Seat], group: "GroupRequest") -> bool:
    return places(seats, group) == len(seats)


def racks_spanned(seats: Sequence[Seat]) -> int:
    """A machine without a rack counts as a rack of its own."""
    return len({seat.rack or (seat.name,) for seat in seats})


def shared_levels(group: "GroupRequest", count: int) -> set[str]:
    """The levels that all machines of the group must share, whatever the verdict."""
    if count == 1:
        return set()
    asked = {group.keep_within} if group.keep_within else set()
    if group.interconnect in LINKS:
        asked.add("fabric")
    if group.interconnect == "nvlink":
        asked.add("nvlink_domain")
    return set(asked)


def lacking_level(group: "GroupRequest", count: int) -> str:
    """The narrowest level that must be shared; "cluster" when none must."""
    levels = shared_levels(group, count)
    return next((level for level in ("nvlink_domain", "rack", "fabric") if level in levels), "cluster")


def _fabrics_for(seat: Seat, group: "GroupRequest") -> list[Fabric]:
    """The fabrics on which the seat counts for a group that must share one."""
    links = LINKS.get(group.interconnect)
    counted = seat.up if links is None else {fabric for fabric in seat.good if fabric[0] in links}
    return sorted(fabric for fabric in counted if fabric[1] or group.keep_within != "fabric")
