"""Shapes of answers, for the schema: what `runs/presentation.py` and the views here put together."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from console.api.explanation_answers import ExplanationAnswer
from console.api.names import HealthName, LinkLayerName, MachineStateName, RunStateName, WorkerStateName

Labels = dict[str, str]


class ProblemError(BaseModel):
    path: str = Field(description="Where: a place in the document, or a parameter's name.")
    code: str = Field(description="Which mistake; never changes.")
    message: str = Field(description="What is wrong and what to do.")


class Problem(BaseModel):
    """Every error of the API (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str = Field(description="A sentence for people.")
    code: str = Field(default="", description="Which refusal; never changes.")
    errors: list[ProblemError] = Field(description="All mistakes at once, where there are several.")


class NetworkVerdict(BaseModel):
    code: str
    text: str


class GroupShape(BaseModel):
    machines: int
    gpus: int = Field(description="GPUs of each machine.")


class WorkerAnswer(BaseModel):
    """A worker: where it is and why."""

    name: str
    run: str
    rank: int
    group: str
    state: WorkerStateName
    reason: str
    machine: str | None
    gpus: list[str] = Field(description="UUIDs of the GPUs that it holds.")
    address: str | None
    exit_code: int | None
    started_at: datetime | None


class RunMetadata(BaseModel):
    name: str
    labels: Labels


class RunStatus(BaseModel):
    state: RunStateName
    reason: str = Field(description="One sentence.")
    cluster: str
    attempt: int
    restarts: int
    network: NetworkVerdict | None
    shape: list[GroupShape] | None
    workers: list[WorkerAnswer]
    queued_at: datetime
    placed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    url: str = Field(description="The run's page.")


class RunAnswer(BaseModel):
    """A run."""

    metadata: RunMetadata
    spec: dict[str, Any] = Field(description="As submitted, defaults filled in: see RunSpec.")
    status: RunStatus


class PlannedWorker(BaseModel):
    name: str
    rank: int
    machine: str
    gpus: list[int] = Field(description="Indices on the machine.")


class PlacementAnswer(BaseModel):
    text: str
    network: NetworkVerdict
    shape: list[GroupShape]
    workers: list[PlannedWorker]


class DryRunAnswer(BaseModel):
    """Where the run could start now, or why it could not: one of the two."""

    placement: PlacementAnswer | None = None
    explanation: ExplanationAnswer | None = None


class EventAnswer(BaseModel):
    at: datetime
    attempt: int
    state: str
    text: str


class SampleAnswer(BaseModel):
    step: int
    value: float | None = Field(description="Null: NaN or infinite.")


class MetricAnswer(BaseModel):
    """What a worker told of one metric in its newest attempt."""

    name: str
    worker: str
    attempt: int
    count: int = Field(description="Samples before they were thinned.")
    low: float | None = Field(description="The lowest of all its finite values; null: there is none.")
    high: float | None = Field(description="The highest.")
    samples: list[SampleAnswer] = Field(description="By step.")


class MachineMetadata(BaseModel):
    name: str
    labels: Labels


class MachineSpec(BaseModel):
    pool: str


class GpuAnswer(BaseModel):
    index: int
    uuid: str
    product: str
    model: str
    memory_bytes: int
    health: HealthName
    evidence: str
    held: bool
    run: str | None = Field(description="Who holds it, where you may see that.")
    worker: str | None


class OverrideAnswer(BaseModel):
    """What an administrator says of the health of something, for a while, whatever its agent says."""

    subject: str = Field(description="`machine`, `gpu <UUID>` or `port <device>:<port>`.")
    health: HealthName
    reason: str
    set_by: str
    set_at: datetime
    until: datetime


class FailureAnswer(BaseModel):
    """Attempts of a run that failed on the machine."""

    run: str | None = Field(description="Where you may see it.")
    kind: str
    text: str
    times: int
    at: datetime = Field(description="The last time.")
    counts: float = Field(description="What it adds to the lemon score now.")


class PortAnswer(BaseModel):
    device: str
    port: int
    link_layer: LinkLayerName
    state: str
    rate_gbps: float
    fabric: str | None
    netdev: str
    health: HealthName
    evidence: str


class MeshAnswer(BaseModel):
    """A machine's place on the mesh network."""

    subnet: str | None = Field(description="Of the cluster's range; null: it has none.")
    public_key: str | None = Field(description="Its WireGuard key; null: its agent makes no mesh.")
    endpoint: str | None = Field(
        description="Where other machines reach it; null: they don't, it reaches them."
    )
    flaw: str = Field(description="Why it is not on the mesh although its agent could be.")


class MachineStatus(BaseModel):
    state: MachineStateName
    reason: str
    cordoned: bool
    drain_until: datetime | None = Field(description="From then on, what runs there goes back to the queue.")
    gpus_total: int
    gpus_free: int
    gpu_model: str
    cpu_cores: int
    memory_bytes: int
    fabric: str | None
    rack: str | None
    nvlink_domain: str | None
    address: str
    agent_version: str
    agent_old: bool = Field(description="Its agent is older than the one that comes with this console.")
    runtime: str
    last_seen_at: datetime | None
    simulated: bool
    limits: list[str] = Field(description="What the machine's runtime can't enforce, a sentence each.")
    health: HealthName = Field(description="Of the machine as a whole.")
    evidence: str
    health_overrides: list[OverrideAnswer]
    lemon_score: float = Field(description="Failures of runs there; from 0.5 on runs use the machine last.")
    failures: list[FailureAnswer]
    mesh: MeshAnswer
    gpus: list[GpuAnswer]
    rdma_ports: list[PortAnswer]


class MachineAnswer(BaseModel):
    metadata: MachineMetadata
    spec: MachineSpec
    status: MachineStatus


class ForesightAnswer(BaseModel):
    """What a change of a machine would do; nothing was changed."""

    text: str
    would_start: list[str] = Field(description="Runs that wait and could start then.")
    would_wait: list[str] = Field(description="Runs that could start now, and then no longer.")


class NamedMetadata(BaseModel):
    name: str


class ClusterSpec(BaseModel):
    mesh_range: str = Field(description="Every machine of the mesh has a /24 of it.")


class ClusterStatus(BaseModel):
    title: str
    machines: int
    pass_number: int = Field(description="Of the last scheduling pass.")
    passed_at: datetime | None


class ClusterAnswer(BaseModel):
    metadata: NamedMetadata
    spec: ClusterSpec
    status: ClusterStatus


class PoolShare(BaseModel):
    gpu_cap: int | None
    guaranteed_gpus: int


class PoolSpec(BaseModel):
    title: str
    workspaces: dict[str, PoolShare] | None = Field(
        description="Those that may use it. Null for who may not change that."
    )


class PoolStatus(BaseModel):
    machines: int
    gpus_total: int
    gpus_free: int


class PoolAnswer(BaseModel):
    metadata: NamedMetadata
    spec: PoolSpec
    status: PoolStatus


class FabricSpec(BaseModel):
    storage: bool = Field(description="A storage network: out of placement.")


class FabricStatus(BaseModel):
    key: str = Field(description="What was found: the subnet manager's GUID, or a guess.")
    guessed: bool
    machines: int
    ports: int


class FabricAnswer(BaseModel):
    metadata: NamedMetadata
    spec: FabricSpec
    status: FabricStatus


class JoinTokenAnswer(BaseModel):
    id: int
    prefix: str
    pool: str
    created_by: str
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None
    machine: str | None = Field(description="The machine that joined with it.")


class NewJoinToken(JoinTokenAnswer):
    secret: str = Field(description="Shown this once.")
    command: str = Field(description="What to run on the machine.")


class MemberAnswer(BaseModel):
    user: str
    name: str
    email: str
    role: Literal["viewer", "editor", "admin"]


class TokenAnswer(BaseModel):
    id: int
    name: str
    role: str
    prefix: str
    user: str = Field(description="Its maker.")
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewToken(TokenAnswer):
    secret: str = Field(description="Shown this once.")


class AuditAnswer(BaseModel):
    at: datetime
    actor: str
    address: str | None
    workspace: str | None
    action: str
    target: str
    before: Any
    after: Any
