"""What the engine answers: a `Placement` or a `Refusal`, both with what each rule said about each machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, Literal, NamedTuple

from placement.arrays import Longs
from placement.domains import Slots
from placement.explain import asked_data, closed, machine_rows, main_codes, mentions, nearest_row
from placement.holdings import Hold
from placement.room import DomainCount, domain_counts, domains_in_all
from placement.rules import MachineOutcome
from placement.score import Score, score_of
from placement.shapes import Shape
from placement.verdicts import Verdict

Transport = Literal["none", "nvlink", "infiniband", "roce", "ethernet"]

MOST_DOMAINS = 64
"""Domains told one by one; the others are counted."""

HEADLINE_DOMAINS, HEADLINE_NAMES = 3, 8
"""Domains, and names of machines in each, that a headline may name."""


class Rank(NamedTuple):
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


@dataclass(frozen=True, eq=False)
class GroupPlacement:
    """Where one group goes. What each worker gets there is worked out when it is asked for."""

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
    machines: Longs
    """(workers,): rows of the snapshot, in rank order."""
    outcome: MachineOutcome
    workers: Callable[[], tuple[Rank, ...]] = field(repr=False)

    @cached_property
    def ranks(self) -> tuple[Rank, ...]:
        """The workers, in rank order."""
        return self.workers()

    @property
    def machine_names(self) -> list[str]:
        """In rank order."""
        names = self.outcome.ask.topology.names
        return [names[machine] for machine in self.machines.tolist()]

    @cached_property
    def score(self) -> Score:
        """What decided for these machines."""
        return score_of(self.outcome.ask, self.shape, self.verdict, self.machines)


@dataclass(frozen=True)
class Placement:
    """Where every worker of the gang goes."""

    groups: tuple[GroupPlacement, ...]

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """All workers in rank order; ranks run through the groups in order."""
        return tuple(rank for group in self.groups for rank in group.ranks)

    @cached_property
    def holds(self) -> tuple[Hold, ...]:
        """What its workers hold, in rank order."""
        return tuple(
            Hold(rank.machine_name, rank.gpus, rank.cpu_millicores, rank.memory_bytes) for rank in self.ranks
        )

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
        told = self.as_headline()
        for data, group in zip(told["groups"], self.groups, strict=True):
            data["rows"] = machine_rows(group.outcome, besides=group.machines)
        return told

    def as_headline(self) -> dict[str, Any]:
        """The same without what is to be said of every machine."""
        return {
            "kind": "placement",
            "verdict": self.verdict.code,
            "groups": [_group_data(group) for group in self.groups],
        }

    @property
    def outcomes(self) -> tuple[MachineOutcome, ...]:
        """What every rule said of every machine, group by group."""
        return tuple(group.outcome for group in self.groups)


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
    POOLS_CLOSED = 9
    """Enough machines have room, but a quota (cap or guarantee) closes their pools to this run."""
    MACHINES_RESERVED = 10
    """Enough machines have room, but they are reserved for a run that goes first."""

    @property
    def code(self) -> str:
        return self.name.lower()


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
    slots: Slots
    """Where the machines stand that pass every rule, by the domain that must hold the gang."""
    outcome: MachineOutcome
    even_when_free: bool = field(default=False)
    """True in an answer of `possible_ever`: the cluster cannot hold it even when empty, healthy and ready."""

    @property
    def outcomes(self) -> tuple[MachineOutcome, ...]:
        """What every rule said of every machine, for the group that fails."""
        return (self.outcome,)

    @cached_property
    def domains(self) -> tuple[DomainCount, ...]:
        """Every domain with what it offers, best first; only made when asked for."""
        return domain_counts(self.outcome.ask, self.shape, self.slots, most=self._domains_in_all)

    @cached_property
    def _domains_in_all(self) -> int:
        return domains_in_all(self.outcome.ask, self.slots)

    def as_data(self) -> dict[str, Any]:
        """Codes and numbers only, JSON-serialisable; `words.py` makes the sentences from it."""
        told = domain_counts(self.outcome.ask, self.shape, self.slots, most=MOST_DOMAINS)
        return {**self._told_shortly(told), "rows": machine_rows(self.outcome)}

    def as_headline(self) -> dict[str, Any]:
        """What `words.headline` and `words.worker_reason` read of `as_data`, small and quickly made, for lists."""
        ask, slots = self.outcome.ask, self.slots
        return self._told_shortly(
            domain_counts(ask, self.shape, slots, most=HEADLINE_DOMAINS, most_names=HEADLINE_NAMES)
        )

    def _told_shortly(self, domains: Sequence[DomainCount]) -> dict[str, Any]:
        ask = self.outcome.ask
        anywhere = not domains or domains[0].kind == "cluster"
        nobody = anywhere and not self.slots.rows.size and not self.even_when_free
        return {
            "kind": "refusal",
            "cause": self.cause.code,
            "group": ask.group.name,
            "groups": len(ask.request.groups),
            "even_when_free": self.even_when_free,
            "asked": asked_data(ask, self.shape),
            "shape": _shape_data(self.shape),
            "other_shapes": [_shape_data(shape) for shape in self.other_shapes],
            "mentions": mentions(self.outcome),
            "closed": closed(self.outcome),
            "machines": ask.topology.size,
            "main_codes": main_codes(self.outcome) if self.cause is Cause.NONE_SELECTED else {},
            "nearest": nearest_row(self.outcome) if nobody else None,
            "domains": [_domain_data(domain) for domain in domains],
            "domains_left_out": self._domains_in_all - len(domains),
            "models_present": list(ask.topology.models),
            "largest_machine_gpus": ask.topology.most_gpus,
        }


def _group_data(group: GroupPlacement) -> dict[str, Any]:
    return {
        "group": group.name,
        "verdict": group.verdict.code,
        "transport": group.transport,
        "asked": asked_data(group.outcome.ask, group.shape),
        "shape": _shape_data(group.shape),
        "fabric": group.fabric,
        "rack": group.rack,
        "nvlink_domain": group.nvlink_domain,
        "score": {name: getattr(group.score, name) for name in Score.__dataclass_fields__},
        "ranks": [_rank_data(rank) for rank in group.ranks],
        "chosen": group.machine_names,
    }


def _rank_data(rank: Rank) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "machine": rank.machine_name,
        "machine_id": rank.machine_id,
        "gpus": list(rank.gpus),
        "gpu_ids": list(rank.gpu_ids),
        "cpu_millicores": rank.cpu_millicores,
        "memory_bytes": rank.memory_bytes,
        "ports": list(rank.ports),
    }


def _shape_data(shape: Shape) -> dict[str, int]:
    return {"machines": shape.machines, "gpus": shape.gpus}


def _domain_data(domain: DomainCount) -> dict[str, Any]:
    return {
        "kind": domain.kind,
        "name": domain.name,
        "on_fabric": domain.on_fabric,
        "found": domain.found,
        "needed": domain.needed,
        "machines": list(domain.machines),
    }
