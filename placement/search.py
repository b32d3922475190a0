"""One group's search: verdicts best first, shapes with fewest machines first, the first with room is the answer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from placement.arrays import UNKNOWN, Bools, Ints, Longs
from placement.ask import Ask
from placement.domains import Slots, choose, first_choice, preference, slots_of
from placement.request import Level
from placement.room import has_room
from placement.rulebook import refused_by_rule
from placement.rules import MachineOutcome
from placement.shapes import Shape
from placement.verdicts import ACCEPTED, RACK_VERDICTS, RDMA_VERDICTS, Verdict


@dataclass(frozen=True)
class Found:
    """Machines for one group, not yet in rank order."""

    verdict: Verdict
    shape: Shape
    machines: Longs
    fabric: int
    """Row of the fabric whose ports join the machines; UNKNOWN when RDMA plays no part."""


@dataclass
class Judgement:
    """What the rules say about one ask; each shape is judged once, when first looked at."""

    ask: Ask
    closed: Bools | None = None
    """(machines,): machines not to be used, whatever the rules say."""
    _outcomes: dict[Shape, MachineOutcome] = field(init=False, default_factory=dict)

    def outcome(self, shape: Shape) -> MachineOutcome:
        found = self._outcomes.get(shape)
        if found is None:
            found = MachineOutcome(self.ask, shape, refused_by_rule(self.ask, shape))
            self._outcomes[shape] = found
        return found

    def usable(self, shape: Shape, taken: Bools | None) -> Bools:
        """(machines,): passes every rule and is not taken by another group of the gang."""
        usable = self.outcome(shape).usable
        if self.closed is not None:
            usable = usable & ~self.closed
        return usable if taken is None else usable & ~taken


def levels_of(ask: Ask, verdict: Verdict) -> frozenset[Level]:
    """The levels that the machines of a gang must share under this verdict and `keep_within`."""
    levels: set[Level] = {ask.group.keep_within} if ask.group.keep_within else set()
    if verdict in RDMA_VERDICTS:
        levels.add("fabric")
    if verdict in RACK_VERDICTS:
        levels.add("rack")
    if verdict is Verdict.NVLINK_DOMAIN:
        levels.add("nvlink_domain")
    return frozenset(levels)


def options(ask: Ask) -> Iterator[tuple[Verdict, Shape]]:
    """What may be tried, in order of preference: one machine only under its own verdict, several under the others."""
    for verdict in ACCEPTED[ask.group.interconnect]:
        for shape in ask.shapes:
            if (shape.machines == 1) == (verdict is Verdict.ONE_MACHINE):
                yield verdict, shape


def search(judgement: Judgement, taken: Bools | None = None) -> Found | None:
    """The best placement of one group beside the machines `taken` by the gang's other groups, or None."""
    for number, (verdict, shape) in enumerate(options(judgement.ask)):
        usable = judgement.usable(shape, taken)
        found = _fewest_lemons(judgement.ask, usable, partial(_find, judgement.ask, verdict, shape))
        if found is not None:
            return found
        # Where the best network has no room, most often no other has: that is told at once.
        if number == 0 and not fits_alone(judgement, taken):
            return None
    return None


def fits_alone(judgement: Judgement, taken: Bools | None = None) -> bool:
    """Whether `search` would find a place."""
    ask = judgement.ask
    return any(has_room(ask, shape, judgement.usable(shape, taken)) for shape in ask.shapes)


def _fewest_lemons(ask: Ask, usable: Bools, find: Callable[[Bools], Found | None]) -> Found | None:
    """The placement whose worst lemon is as small as possible."""
    found = find(usable)
    if found is None or ask.lemons is None or not ask.lemons[found.machines].any():
        return found
    for limit in np.unique(ask.lemons[usable])[:-1]:
        better = find(usable & (ask.lemons <= limit))
        if better is not None:
            return better
    return found


def _find(ask: Ask, verdict: Verdict, shape: Shape, usable: Bools) -> Found | None:
    """The best machines under this verdict, in this shape, out of the usable ones."""
    if np.count_nonzero(usable) < shape.machines:
        return None
    if verdict is Verdict.ONE_MACHINE:
        machines = first_choice(ask, shape, usable)
        return Found(verdict, shape, machines, fabric_of_one(ask, int(machines[0])))
    slots = slots_under(ask, verdict, usable)
    if slots.counts.max(initial=0) < shape.machines:
        return None
    liked = preference(ask, shape, usable)
    spread = ask.group.spread in ("rack", "fabric")
    if spread:
        slots = slots_under(ask, verdict, usable, liked.position)
    machines, domain = choose(shape, slots, liked, spread=spread)
    fabric = int(slots.grouping.fabric[domain]) if verdict in RDMA_VERDICTS else UNKNOWN
    return Found(verdict, shape, machines, fabric)


def slots_under(
    ask: Ask, verdict: Verdict, usable: Bools, position: Ints | None = None, *, every: bool = False
) -> Slots:
    """Slots per domain that this verdict and `keep_within` require; see `slots_of`."""
    link = ask.link_of(verdict)
    links = () if link is None else (link,)
    return slots_of(ask, levels_of(ask, verdict), links, usable, position, every=every)


def fabric_of_one(ask: Ask, machine: int) -> int:
    """The fabric for a gang of one machine that asked for RDMA: InfiniBand first, then the fastest, then by name."""
    if not ask.kinds:
        return UNKNOWN
    members, fabrics = ask.topology.members, ask.topology.fabrics
    rows = np.flatnonzero((members.machine == machine) & (members.gbps >= ask.min_gbps))
    link = fabrics.link[members.fabric[rows]]
    fits = np.isin(link, ask.kinds)
    if ask.group.keep_within == "fabric":
        fits &= fabrics.named[members.fabric[rows]]
    rows = rows[fits]
    best = np.lexsort((members.fabric[rows], -members.gbps[rows], fabrics.link[members.fabric[rows]]))[0]
    return int(members.fabric[rows[best]])
