"""What the database tells the engine about machines: plain frozen values, filled by `runs/scheduling/snapshot.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Literal

Link = Literal["infiniband", "ethernet"]


class MachineState(IntFlag):
    """State bits of a machine. It takes work only with READY set and every other bit clear."""

    READY = 1
    CORDONED = 2
    DRAINING = 4
    UNREACHABLE = 8
    STALE_AGENT = 16
    QUARANTINED = 32
    CONTESTED = 64
    """Two agents use its credential."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU. `held`, `suspect` and `faulty` are independent of each other; a faulty GPU is never used."""

    index: int
    """Its index on the machine, as the driver and the workers count."""
    id: int = 0
    """The caller's id (database key), handed back in a placement; the engine never looks at it."""
    model: str = ""
    """Short product name ("H100"); empty when unknown, which matches no request that names a model."""
    memory_bytes: int = 0
    numa: int = -1
    """NUMA node, -1 when unknown."""
    island: int = -1
    """GPUs that reach each other over NVLink share a number; -1 when unknown (then the NUMA node counts)."""
    held: bool = False
    suspect: bool = False
    faulty: bool = False


@dataclass(frozen=True, slots=True)
class PortFacts:
    """One RDMA port. An `ethernet` port is a RoCE port; plain network cards are not reported."""

    name: str
    """device:port as NCCL_IB_HCA wants it, for example "mlx5_0:1"."""
    link: Link = "infiniband"
    up: bool = True
    gbps: int = 0
    """Speed in Gb/s, of a port that is down the last one known; 0 when unknown, slower than any `min_gbps`."""
    fabric: str | None = None
    """Name of its fabric. None: an InfiniBand port joins nothing; RoCE ports without one form one routed network."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """One machine as the database knows it now. Free amounts already exclude everything allocated."""

    name: str
    id: int = 0
    """The caller's id, handed back in a placement."""
    pool: str = ""
    state: MachineState = MachineState.READY
    cpu_millicores: int = 0
    cpu_free_millicores: int = 0
    memory_bytes: int = 0
    memory_free_bytes: int = 0
    gpus: tuple[GpuFacts, ...] = ()
    ports: tuple[PortFacts, ...] = ()
    rack: str | None = None
    nvlink_domain: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    drives: frozenset[str] = frozenset()
    """Names of the drives that a worker on this machine can mount."""
