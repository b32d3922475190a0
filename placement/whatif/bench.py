"""Where changes are put through the engine: what is asked, how often, and what did not help."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from placement.arrays import Bools
from placement.ask import Ask
from placement.domains import slots_of
from placement.outcome import Cause, Placement, Refusal
from placement.place import NoRoom, place, placed
from placement.request import GroupRequest, Level, Request
from placement.rules import MachineOutcome, Rule
from placement.search import Judgement
from placement.shapes import Shape
from placement.snapshot import Snapshot
from placement.whatif.changes import Change, Code, WhatIf


@dataclass(frozen=True)
class Case:
    """What the engine refused, and the group that is to be changed so that it does not."""

    snapshot: Snapshot
    request: Request
    refusal: Refusal
    index: int
    """The group: the refused one, or any of groups that stand in each other's way."""
    changes: tuple[Change, ...] = ()
    """Made already."""

    @property
    def group(self) -> GroupRequest:
        return self.request.groups[self.index]

    @property
    def ask(self) -> Ask:
        return self.judgement.ask

    @cached_property
    def judgement(self) -> Judgement:
        return Judgement(Ask(self.snapshot, self.request, self.index))

    @property
    def shape(self) -> Shape:
        """The shape closest to being met; of a group that fits alone, its first."""
        if self.index == self.refusal.group or not self.ask.shapes:
            return self.refusal.shape
        return self.ask.shapes[0]

    @property
    def outcome(self) -> MachineOutcome:
        return self.judgement.outcome(self.shape)

    def request_with(self, **fields: Any) -> Request:
        """The request with these fields of the group changed."""
        group = replace(self.group, **fields)
        groups = (*self.request.groups[: self.index], group, *self.request.groups[self.index + 1 :])
        return replace(self.request, groups=groups)

    def change(self, code: Code, numbers: dict[str, Any], resources: dict[str, Any]) -> Change:
        """A change to the group's request; `resources`: fields below `requested_resources`."""
        template = {"task_template": {"requested_resources": resources}}
        named = len(self.request.groups) > 1 or bool(self.group.name)
        patch = {"worker_groups": {self.group.name: template}} if named else template
        return Change(code, numbers, self.group.name, patch)


def cases_of(
    snapshot: Snapshot, request: Request, refusal: Refusal, changes: tuple[Change, ...] = ()
) -> list[Case]:
    """One for the refused group, or one for each group where all of them collide."""
    collide = refusal.cause is Cause.GROUPS_COLLIDE
    indices = range(len(request.groups)) if collide else [refusal.group]
    return [Case(snapshot, request, refusal, index, changes) for index in indices]


_ON_PORTS = frozenset({Code.INTERCONNECT, Code.MIN_GBPS, Code.BRING_PORT_UP})
"""Which ports count under two of these together, neither of them alone tells."""

_ASKED_TWICE = np.uint64(Rule.NO_FABRIC.bit | Rule.NO_RACK.bit | Rule.NO_NVLINK_DOMAIN.bit)
"""Rules for which two fields of a request ask: dropping one of them lifts nothing."""

_WIDEST_FIRST: tuple[Level, ...] = ("fabric", "rack", "nvlink_domain")


@dataclass
class Bench:
    """Counts what the engine is asked, and keeps what it refused."""

    left: int
    """Engine calls that may still be made."""
    failed: dict[tuple[str, str | None, str], "Failure"] = field(default_factory=dict)
    """Single changes that did not help, by `Change.key`."""
    skipped: frozenset[Code] = frozenset()
    """Not to be tried as one of a pair."""
    tried: int = 0
    """Changes put through the engine, helpful or not."""

    def place(self, snapshot: Snapshot, request: Request) -> Placement | Refusal | None:
        """The engine's answer; None when nothing more may be asked."""
        if self.left <= 0:
            return None
        self.left -= 1
        return place(snapshot, request)

    def attempt(
        self, case: Case, change: Change, *, request: Request | None = None, snapshot: Snapshot | None = None
    ) -> WhatIf | None:
        """The offer, if the gang is placed with this change beside those made already."""
        if self.left <= 0 or (case.changes and not self._worth(case, change)):
            return None
        self.left -= 1
        self.tried += 1
        cluster, asked = snapshot or case.snapshot, request or case.request
        # Most changes don't help, and why is of interest only when pairs are tried.
        answer = placed(cluster, asked)
        if isinstance(answer, Placement):
            return WhatIf((*case.changes, change), answer)
        if not case.changes:
            self.failed[change.key] = Failure(change, cluster, asked, answer)
        return None

    def _worth(self, case: Case, change: Change) -> bool:
        """Whether this change can help beside the first: by what each of them alone freed."""
        before = {(made.code, made.group) for made in case.changes}
        if change.code in self.skipped or (change.code, change.group) in before:
            return False
        alone = self.failed.get(change.key)
        if alone is None or alone.refusal.group != case.refusal.group:
            return True
        return frees_enough(case, change.code, alone.refusal.outcome)


def frees_enough(case: Case, code: Code, alone: MachineOutcome) -> bool:
    """Whether the machines that either change opens are enough in some domain that may hold the gang then.

    `alone`: what the rules say with the second change only.
    """
    one, other = case.refusal.outcome, alone
    if len(_ON_PORTS & {code, *(made.code for made in case.changes)}) > 1:
        return True
    opened = (one.bits & other.bits & ~_ASKED_TWICE) == 0
    needed = min(one.shape.machines, other.shape.machines)
    if np.count_nonzero(opened) < needed:
        return False
    levels = _still_shared(one.ask, other.ask) if needed > 1 else frozenset()
    asks = (one.ask,) if _count_alike(one.ask, other.ask) else (one.ask, other.ask)
    found = (slots_of(ask, levels, ask.kinds if "fabric" in levels else (), opened) for ask in asks)
    return any((slots.counts >= needed).any() for slots in found)


def _count_alike(one: Ask, other: Ask) -> bool:
    """Whether both find the same slots among the same machines: all that `slots_of` reads of them is the same."""
    read = [(ask.kinds, ask.min_gbps, ask.group.keep_within, ask.group.spread) for ask in (one, other)]
    return one.topology is other.topology and read[0] == read[1]


def _still_shared(one: Ask, other: Ask) -> frozenset[Level]:
    """The levels that the gang must share when both changes are made: those that both still ask for, each field by
    itself; where both name a level to keep within, the wider one."""
    levels: set[Level] = set()
    kept = (one.group.keep_within, other.group.keep_within)
    if None not in kept:
        levels.add(next(level for level in _WIDEST_FIRST if level in kept))
    if one.kinds and other.kinds:
        levels.add("fabric")
    if one.group.interconnect == other.group.interconnect == "nvlink":
        levels.add("nvlink_domain")
    return frozenset(levels)


@dataclass(frozen=True)
class Failure:
    """A single change that alone does not start the run."""

    change: Change
    snapshot: Snapshot
    request: Request
    no_room: NoRoom

    @property
    def refusal(self) -> Refusal:
        return self.no_room.refusal

    def cases(self) -> list[Case]:
        """To go on from."""
        return cases_of(self.snapshot, self.request, self.refusal, (self.change,))

    def moved(self, before: Refusal) -> bool:
        """Whether it lifted a rule from some machine, freed slots, or brought another group into question."""
        if self.refusal.group != before.group or self.refusal.cause is not before.cause:
            return True
        if self.change.code is Code.INTERCONNECT:
            return True  # `keep_within` may ask for the same fabric: neither of the two moves anything alone.
        lifted: Bools = (before.outcome.bits & ~self.refusal.outcome.bits) != 0
        return bool(lifted.any()) or _closeness(self.refusal) > _closeness(before)


def _closeness(refusal: Refusal) -> float:
    return float(refusal.slots.counts.max(initial=0) / refusal.shape.machines)
