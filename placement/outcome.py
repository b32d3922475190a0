"""What the engine answers: a `Placement` or a `Refusal`, both with what each rule said about each machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from placement.arrays import Bools
from placement.verdicts import Verdict

if TYPE_CHECKING:
    from placement.ask import Ask
    from placement.domains import Slots

Transport = Literal["none", "nvlink", "infiniband", "roce", "ethernet"]
DomainKind = Literal["cluster", "fabric", "rack", "nvlink_domain"]


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
    NOT_READY = 20
    GPUS_FAULTY = 21
    MEMORY_SHORT = 22
    CPU_SHORT = 23
    GPUS_BUSY = 24
    GPUS_SUSPECT = 25
    STALE_AGENT = 26
    DRAINING = 27
    CORDONED = 28

    @property
    def code(self) -> str:
        """The code stored in explanations: `gpus_busy`."""
        return self.name.lower()

    @property
    def bit(self) -> int:
        return 1 << int(self)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a group is split: so many machines, so many GPUs on each."""

    machines: int
    gpus: int


@dataclass(frozen=True)
class MachineOutcome:
    """What every rule said about every machine for one group in one shape. Nothing is computed until asked for."""

    ask: "Ask"
    shape: Shape
    refused: Mapping[Rule, Bools]
    """Per rule that the request asks for, (machines,): True where it refuses that machine."""

    @cached_property
    def usable(self) -> Bools:
        """(machines,): True where no rule refuses."""
        return ~reduce(np.logical_or, self.refused.values())

    @cached_property
    def bits(self) -> npt.NDArray[np.uint32]:
        """(machines,): one bit per failed rule, see `Rule.bit`; 0 where the machine could take a worker."""
        bits = np.zeros(self.usable.size, dtype=np.uint32)
        for rule, refused in self.refused.items():
            bits |= refused * np.uint32(rule.bit)
        return bits

    def rules_failed(self, machine: int) -> tuple[Rule, ...]:
        """Every rule that refuses this machine, the main one first."""
        return tuple(sorted(rule for rule, refused in self.refused.items() if refused[machine]))


@dataclass(frozen=True, slots=True)
class Rank:
    """One worker's place. `gpus` are indices on the machine; `ports` go into NCCL_IB_HCA in this order."""

    rank: int
    group: int
    machine: int
    """Row of the snapshot."""
    machine_id: int
    machine_name: str
    gpus: tuple[int, ...]
    gpu_ids: tuple[int, ...]
    cpu_millicores: int
    memory_bytes: int
    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """The parts that decided, in the order in which they are compared; smaller is better in each."""

    verdict: int
    machines: int
    lemon: float
    """Highest lemon score among the machines used."""
    racks: int
    """Racks spanned; a machine without a rack counts as a rack of its own."""
    broken: int
    """Machines that were wholly free and are now only partly used."""
    left_over: int
    """Free GPUs that stay behind on the machines used."""
    suspects: int
    """GPUs with a warning sign that had to be used."""

    @property
    def network(self) -> tuple[int, int, int]:
        """What `patience_seconds` waits for: verdict, machines, racks. Smaller is a better network."""
        return (self.verdict, self.machines, self.racks)


@dataclass(frozen=True, slots=True)
class GroupPlacement:
    """Where one group goes."""

    name: str
    verdict: Verdict
    transport: Transport
    """What NCCL is to use: RDMA also on one machine when the run asked for it; `none`: one machine, nothing asked."""
    shape: Shape
    fabric: str | None
    """Fabric whose ports are in `Rank.ports`; "" is the RoCE network without a name."""
    rack: str | None
    """The rack, when all workers are in one."""
    nvlink_domain: str | None
    """The NVLink domain, when all workers are in one (several machines: IMEX channel 0)."""
    ranks: tuple[Rank, ...]
    score: Score
    outcome: MachineOutcome


@dataclass(frozen=True)
class Placement:
    """Where every worker of the gang goes."""

    groups: tuple[GroupPlacement, ...]

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """All workers in rank order; ranks run through the groups in order."""
        return tuple(rank for group in self.groups for rank in group.ranks)

    @property
    def verdict(self) -> Verdict:
        """The worst network of any group: what the run's page shows."""
        return max(group.verdict for group in self.groups)

    @property
    def network(self) -> tuple[tuple[int, int, int], ...]:
        """Per group, smaller is better: where the empty cluster's is smaller, patience has something to gain."""
        return tuple(group.score.network for group in self.groups)

    def as_data(self) -> dict[str, Any]:
        """Codes and numbers only, JSON-serialisable; `words.py` makes the sentences from it."""
        from placement.explain import placement_data

        return placement_data(self)


class Cause(IntEnum):
    """Why the gang as a whole cannot be placed: what the set lacks."""

    NONE_SELECTED = 0
    """No machine is in the pools, names, labels that the request and the policy admit."""
    NO_MODEL = 1
    """No admitted machine has a GPU of the models asked for."""
    TOO_FEW_MACHINES = 2
    """Not enough machines, wherever they stand."""
    NO_NVLINK_ROOM = 3
    """No NVLink domain has enough machines."""
    NO_RACK_ROOM = 4
    """No rack has enough machines."""
    NO_FABRIC_ROOM = 5
    """No fabric has enough machines."""
    NO_SPREAD = 6
    """Enough machines, but not in so many different racks or fabrics."""
    GROUPS_COLLIDE = 7
    """Every group would fit alone; together they need the same machines."""
    NO_SHAPE = 8
    """The GPUs cannot be split as asked on any machine of this cluster."""

    @property
    def code(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class DomainCount:
    """What one domain offers to the gang: slots are machines that pass every rule."""

    kind: DomainKind
    name: str
    on_fabric: str | None
    """For a rack of an RDMA placement: the fabric whose ports count."""
    found: int
    needed: int
    machines: tuple[str, ...]
    """The machines found, by name."""


@dataclass(frozen=True)
class Refusal:
    """Why no set of machines can hold the gang now. Every stated cause is true; all failed rules are kept."""

    cause: Cause
    group: int
    """The group that fails (for GROUPS_COLLIDE: the first that finds its machines taken)."""
    shape: Shape
    """The shape closest to being met; `domains` and `outcome` are about it."""
    other_shapes: tuple[Shape, ...]
    """Shapes that would have been accepted too and lack more."""
    slots: "Slots"
    """Where the machines stand that pass every rule, by the domain that must hold the gang."""
    outcome: MachineOutcome
    even_when_free: bool = field(default=False)
    """True in an answer of `possible_ever`: the cluster cannot hold it even when empty, healthy and ready."""

    @cached_property
    def domains(self) -> tuple[DomainCount, ...]:
        """Every domain with what it offers, best first; only made when asked for."""
        from placement.explain import domain_counts

        return domain_counts(self)

    def as_data(self) -> dict[str, Any]:
        """Codes and numbers only, JSON-serialisable; `words.py` makes the sentences from it."""
        from placement.explain import refusal_data

        return refusal_data(self)
