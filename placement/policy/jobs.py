"""What a cycle is given about runs, and what it says about each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from placement.ever import Impossible
from placement.holdings import Hold, Holding
from placement.outcome import Placement, Refusal
from placement.preempt import Preemption
from placement.request import Request
from placement.topology import Topology

Kind = Literal["order", "fit", "policy", "never"]


@dataclass(frozen=True, slots=True)
class Job:
    """A run that waits."""

    key: int
    workspace: int
    priority: int
    queued_at: float
    request: Request
    """As the document and the workspace's pools say; the cycle adds what quotas and reservations close."""
    ahead: bool = False
    """Restarted after a failure: it goes before others of its priority, whatever their workspaces have used."""
    preemptible: bool = False
    limit_seconds: float | None = None
    """From its placement to its end at the latest: barrier, time limit and grace. None: no time limit."""
    patience_seconds: float = 0
    patient_since: float | None = None
    """When a pass could first have placed it."""
    claims: tuple[Hold, ...] = ()
    """What a preemption in its favour frees for it."""
    kept: frozenset[str] = frozenset()
    """Names of the machines that the last pass reserved for it."""
    family: int | None = None
    """Of a worker that starts on its own: the same for all workers of its run, no two of which share a machine.
    `request.occupied` names the machines that hold one already; the cycle adds those that it places."""
    gpus: int = field(init=False)
    """Of the whole gang."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gpus", sum(group.gpus for group in self.request.groups))


@dataclass(frozen=True, slots=True)
class Running:
    """A run that holds something."""

    holding: Holding
    workspace: int
    priority: int
    started_at: float
    """When it was placed."""
    preemptible: bool = False
    leaving: bool = False
    """It is being stopped already."""

    @property
    def gpus(self) -> int:
        return sum(len(hold.gpus) for hold in self.holding.holds)


@dataclass(frozen=True, slots=True)
class Share:
    """What a workspace may use of a pool."""

    cap: int | None = None
    """GPUs at most; None: no cap."""
    guaranteed: int = 0
    """GPUs that others may borrow with preemptible runs only."""


Shares = Mapping[tuple[int, str], Share]
"""By workspace and name of the pool."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """Machines kept for a job that goes first and can't start yet."""

    key: int
    priority: int
    machines: frozenset[str]
    at: float | None
    """When it can start at the latest; None: a holder has no time limit."""
    waits_for: tuple[int, ...]
    """Keys of the runs that hold something there."""
    pools: frozenset[str]
    models: frozenset[str]
    """Names in the cluster's tables that it may use: another reservation is only made where these are disjoint."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The job can start here and now."""

    placement: Placement
    request: Request
    """With what policy and order closed: what the engine was really asked."""
    behind: tuple[int, ...] = ()
    """Jobs whose reservations closed machines to this one."""


@dataclass(frozen=True, slots=True)
class Patient:
    """It could start, and waits for a better network."""

    found: Placement
    better: Placement
    until: float
    request: Request
    behind: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """It can't start now."""

    kind: Kind
    refusal: Refusal
    request: Request
    behind: tuple[int, ...] = ()
    reserved: Reserved | None = None
    """Made for it by this judgement."""
    preemption: Preemption | None = None
    """Whom to stop so that it can start."""
    quota_kept: Mapping[str, int] = field(default_factory=dict)
    """What quotas leave is kept for jobs that go first: by pool, the key of one. Empty where that is not the cause."""
    making_room: bool = False
    """What was stopped in its favour has not ended yet."""
    impossible: Impossible | None = None


Decision = Placed | Patient | Refused


@dataclass
class Memory:
    """What a process may remember from pass to pass; forgetting it costs time, never an answer."""

    ever: dict[int, tuple[Topology, Request, Impossible | None]] = field(default_factory=dict)
    """By job: the topology and the request that were judged."""
