"""What a process keeps of a cluster between plans: documents that were read, and what attempts hold.

Neither changes once read (a document has an edition). Forgetting it costs time, never an answer.
"""

import threading
from collections import defaultdict
from dataclasses import dataclass, field

from placement import Request
from placement.holdings import Hold
from placement.policy import Memory
from runs.stores import Stores
from wire.spec import RunDocument


@dataclass(frozen=True, slots=True)
class Known:
    """What a pass needs of a document, for one edition of it."""

    edition: int
    document: RunDocument
    request: Request
    """Without pools and machines to avoid, which change."""
    stores: Stores


@dataclass(frozen=True, slots=True)
class Held:
    """What an attempt holds and what its document says of its end."""

    holds: tuple[Hold, ...]
    limit_seconds: float | None
    grace_seconds: float
    preemptible: bool


@dataclass
class ClusterMemory:
    """Of one cluster, in one process."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a plan is loaded: web processes load several at once."""
    known: dict[int, Known] = field(default_factory=dict)
    """By run."""
    held: dict[int, Held] = field(default_factory=dict)
    """By attempt."""
    cycle: Memory = field(default_factory=Memory)


_memories: dict[int, ClusterMemory] = defaultdict(ClusterMemory)


def memory_of(cluster_id: int) -> ClusterMemory:
    """For as long as this process lives."""
    return _memories[cluster_id]


def memory_forget() -> None:
    """As a process that has just started."""
    _memories.clear()
