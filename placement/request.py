"""What a run needs, in words and numbers: the engine's input beside the snapshot.

The run document's rules (`wire/spec.py`) have refused contradictions before a request is made; the engine only
guards what would make it compute nonsense (`ValueError`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Interconnect = Literal["any", "ethernet", "rdma", "infiniband", "nvlink"]
Level = Literal["nvlink_domain", "rack", "fabric"]
Spread = Literal["machine", "rack", "fabric"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which machines the request itself admits: an empty part admits all; all parts must hold."""

    pools: frozenset[str] | None = None
    """Mode Pools: names of pools; None in every other mode."""
    machines: frozenset[str] | None = None
    """Mode Machines: names of machines; None in every other mode."""
    match_labels: Mapping[str, str] = field(default_factory=dict)
    """Mode Labels: every pair must be on the machine."""
    exclude_machines: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """One group of equal workers, one worker on each machine, GPUs split evenly."""

    name: str = ""
    gpus: int = 0
    """GPUs of the whole group; 0 for a group without GPUs."""
    models: frozenset[str] = frozenset()
    """Short names, any of; empty: every model."""
    healthy_only: bool = False
    min_memory_bytes: int = 0
    """Memory that every GPU must have."""

    machines: int | None = None
    """Exactly so many; then min_nodes and max_nodes are None."""
    min_nodes: int | None = None
    max_nodes: int | None = None
    min_per_machine: int = 1
    """GPUs on one machine at least, where the number of machines is left open."""

    cpu_millicores_per_gpu: int | None = None
    memory_bytes_per_gpu: int | None = None
    cpu_millicores: int | None = None
    """Per worker. Where neither form is given, a worker gets its GPUs' share of the machine's total."""
    memory_bytes: int | None = None

    interconnect: Interconnect = "any"
    min_gbps: int | None = None
    keep_within: Level | None = None
    spread: Spread | None = None
    selection: Selection = field(default_factory=Selection)
    drives: frozenset[str] = frozenset()
    """Drives that every machine must be able to mount."""


@dataclass(frozen=True, slots=True)
class Request:
    """One gang: all groups are placed together or none is; no two workers of it share a machine."""

    groups: tuple[GroupRequest, ...]
    allowed_pools: frozenset[str] | None = None
    """Policy: pools that the workspace may use; None: all."""
    over_cap: frozenset[str] = frozenset()
    """Policy: pools in which this run would pass its workspace's cap."""
    guaranteed_to_others: frozenset[str] = frozenset()
    """Policy: pools whose free GPUs are guaranteed to other workspaces and not lent to this run."""
    reserved: frozenset[str] = frozenset()
    """Order: machines reserved for a run that goes first, which this run may not use meanwhile."""
    occupied: frozenset[str] = frozenset()
    """Machines that already hold a worker of this run (`start: Independent` places workers one by one)."""
    avoid: Mapping[str, float] = field(default_factory=dict)
    """Machine name → lemon score (> 0): used last, the lower score before the higher."""
    prefer: frozenset[str] = frozenset()
    """Machines that already have the image: used first among equals."""

    def __post_init__(self) -> None:
        if not self.groups:
            raise ValueError("A request needs at least one group of workers.")
