"""What may be said against a machine, and what every rule said about every machine."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from placement.arrays import Bits, Bools, read_only
from placement.ask import Ask
from placement.shapes import Shape


class Rule(IntEnum):
    """One rule = one reason bit = one code = one sentence (`words.py`).

    Ordered from what no waiting changes to what is easily lifted: the first failed rule is the machine's main one.
    """

    POOL_NOT_ALLOWED = 0
    NOT_IN_POOLS = 1
    NOT_NAMED = 2
    LABEL_MISSING = 3
    EXCLUDED = 4
    SAME_RUN = 5
    NO_GPUS = 6
    OTHER_MODEL = 7
    GPU_MEMORY = 8
    TOO_FEW_GPUS = 9
    DRIVE_MISSING = 10
    NO_RDMA_PORT = 11
    PORT_NO_FABRIC = 12
    NO_NVLINK_DOMAIN = 13
    NO_FABRIC = 14
    NO_RACK = 15
    PORT_DOWN = 16
    PORT_SLOW = 17
    QUARANTINED = 18
    UNREACHABLE = 19
    CONTESTED = 20
    NOT_READY = 21
    GPUS_FAULTY = 22
    POOL_CAP = 23
    POOL_GUARANTEED = 24
    RESERVED = 25
    GPUS_BUSY = 26  # who holds the GPUs holds cores and memory with them
    MEMORY_SHORT = 27
    CPU_SHORT = 28
    GPUS_SUSPECT = 29
    STALE_AGENT = 30
    DRAINING = 31
    CORDONED = 32

    @property
    def code(self) -> str:
        """The code stored in explanations: `gpus_busy`."""
        return self.name.lower()

    @property
    def bit(self) -> int:
        return 1 << int(self)


QUOTA = (Rule.POOL_CAP, Rule.POOL_GUARANTEED)
RESERVATION = (Rule.RESERVED,)
"""Rules of policy and of order that close machines which may have room."""


@dataclass(frozen=True, slots=True)
class Said:
    """What some rules said about every machine."""

    by_rule: Mapping[Rule, Bools]
    """(machines,) each: True where the rule refuses that machine."""
    refused: Bools
    """(machines,): True where any of them does."""

    @classmethod
    def of(cls, by_rule: Mapping[Rule, Bools]) -> "Said":
        return cls(by_rule, any_of(list(by_rule.values())))

    @classmethod
    def together(cls, parts: Sequence["Said"]) -> "Said":
        by_rule = {rule: refused for part in parts for rule, refused in part.by_rule.items()}
        return cls(by_rule, any_of([part.refused for part in parts]))

    def but_for(self, rules: Collection[Rule]) -> Iterable[Bools]:
        """Masks that together are what the others said."""
        if not any(rule in self.by_rule for rule in rules):
            return (self.refused,)
        return [refused for rule, refused in self.by_rule.items() if rule not in rules]


def any_of(masks: Sequence[Bools]) -> Bools:
    """True where one of the masks is, of which there must be one at least."""
    first, *others = masks
    joined = first.copy() if others else first
    for mask in others:
        np.logical_or(joined, mask, out=joined)
    return read_only(joined)


@dataclass(frozen=True)
class MachineOutcome:
    """What every rule said about every machine for one group in one shape. Nothing is computed until asked for."""

    ask: Ask
    shape: Shape
    said: Sequence[Said]
    """By every rule that the request asks for, each in one of these."""

    @cached_property
    def refused(self) -> Mapping[Rule, Bools]:
        """Per rule that the request asks for, (machines,): True where it refuses that machine."""
        return {rule: refused for part in self.said for rule, refused in part.by_rule.items()}

    @cached_property
    def usable(self) -> Bools:
        """(machines,): True where no rule refuses."""
        return ~any_of([part.refused for part in self.said])

    def usable_but_for(self, rules: Collection[Rule]) -> Bools:
        """(machines,): True where no rule refuses, or these alone."""
        return ~any_of([mask for part in self.said for mask in part.but_for(rules)])

    @cached_property
    def bits(self) -> Bits:
        """(machines,): one bit per failed rule, see `Rule.bit`; 0 where the machine could take a worker."""
        bits = np.zeros(self.usable.size, dtype=np.uint64)
        for rule, refused in self.refused.items():
            bits |= refused * np.uint64(rule.bit)
        return bits

    def rules_failed(self, machine: int) -> tuple[Rule, ...]:
        """Every rule that refuses this machine, the main one first."""
        return tuple(sorted(rule for rule, refused in self.refused.items() if refused[machine]))
