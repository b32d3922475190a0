"""What agents and the console say to each other (protocol version 1).

The channel is level-triggered. `POST /agent/v1/sync` carries everything the agent observes and is answered
with everything it should be doing; neither side sends commands. Unknown fields are ignored both ways, so a
newer side can talk to an older one.

Revisions: the console numbers each machine's desired state. The agent reports the number it has applied;
the console answers with a new desired state only when its number is higher, and otherwise holds the request
up to `wait_seconds`.

Times are seconds since the epoch by the sender's clock; the console corrects them with the skew it measures
from `SyncRequest.sent_at`.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from wire.names import plain_text

PROTOCOL_VERSION = 1
OLDEST_PROTOCOL_VERSION = 1
POLL_SECONDS = 25
"""How long the console holds an unchanged poll. Proxies commonly cut idle requests at 30 s or more."""
LOG_CHUNK_BYTES = 256 * 1024
"""Largest single chunk; the console stores one row a chunk."""
LOG_REQUEST_BYTES = 4 * 1024 * 1024
"""Largest body of one `POST /agent/v1/logs`."""
LOG_REQUEST_CHUNKS = 16_384
"""Most chunks of one: as many as agents put there, which count 256 bytes for each one's header."""

SYNC_PATH = "/agent/v1/sync"
LOGS_PATH = "/agent/v1/logs"
JOIN_PATH = "/agent/v1/join"


Epoch = Annotated[float, Field(ge=0, le=4_102_444_800)]
"""Seconds since 1970, up to the year 2100: corrected by any skew it is still a time."""
Number = Annotated[int, Field(ge=0, lt=2**63)]
"""What fits into a column of the database: one number that doesn't must not stop a machine's channel."""
Text = Annotated[str, AfterValidator(plain_text)]
"""Shown to people: what would move the cursor or turn the text around it is replaced."""


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


# --- What a machine has -------------------------------------------------------------------------------


class GpuReport(Message):
    index: int = Field(ge=0, lt=1024)
    uuid: Text = Field(min_length=1, max_length=96)
    product: Text = Field(max_length=128)
    memory_bytes: int = Field(ge=0, lt=2**50)
    numa_node: int | None = Field(default=None, ge=-1, lt=2**15)
    nvlink_domain: Text | None = Field(default=None, max_length=80)
    """Cluster UUID and clique of a multi-node NVLink domain; None on machines that have none."""
    health: Literal["healthy", "suspect", "faulty"] = "healthy"
    evidence: Text = ""


class PortReport(Message):
    device: Text = Field(min_length=1, max_length=64)
    port: int = Field(ge=1, le=255)
    link_layer: Literal["InfiniBand", "Ethernet"]
    """Ethernet means RoCE: a plain network card is no RDMA port."""
    state: Text = Field(max_length=32)
    """As sysfs says: ACTIVE, DOWN, INIT, ARMED."""
    rate_gbps: float = Field(ge=0, le=1_000_000)
    subnet_manager: Text | None = Field(default=None, max_length=80)
    """Identity of the fabric: the subnet manager's port GUID, or a guess such as "fe80…/lid 1"."""
    guessed: bool = False
    netdev: Text | None = Field(default=None, max_length=32)


FoundLabels = Annotated[
    dict[
        Annotated[Text, Field(min_length=1, max_length=253)],
        Annotated[Text, Field(max_length=63)],
    ],
    Field(max_length=64),
]


class Inventory(Message):
    cpu_cores: int = Field(ge=1, le=1_000_000)
    memory_bytes: int = Field(ge=1, lt=2**56)
    gpus: tuple[GpuReport, ...] = Field(default=(), max_length=1024)
    rdma_ports: tuple[PortReport, ...] = Field(default=(), max_length=1024)
    labels: FoundLabels = Field(default_factory=dict)
    """Labels of a simulated machine; a real agent sends none, administrators set them."""
    kernel: Text = ""
    runtime_version: Text = ""
    limits: tuple[Annotated[Text, Field(max_length=500)], ...] = Field(default=(), max_length=32)
    """What the runtime can't enforce on this machine, a sentence each."""


# --- What the agent should do --------------------------------------------------------------------------


class FileMount(Message):
    path: str
    value: str
    mode: int = 0o444


class Assignment(Message):
    """One worker of one attempt on this machine. `phase` only ever rises: prepare, start, stop."""

    id: str
    phase: Literal["prepare", "start", "stop"]
    run: str
    worker: str
    attempt: int
    rank: int
    image: str = ""
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    working_dir: str | None = None
    user: str | None = None
    files: tuple[FileMount, ...] = ()
    gpu_uuids: tuple[str, ...] = ()
    rdma: bool = False
    """Pass /dev/infiniband/* and IPC_LOCK."""
    imex: bool = False
    cpu_cores: float = 1
    memory_bytes: int = 0
    shm_bytes: int = 0
    rendezvous_port: int | None = None
    """Set on the leader: the agent must be able to bind it before it reports ready."""
    stop_signal: str = "SIGTERM"
    stop_grace_seconds: float = 30
    time_limit_seconds: float | None = None
    stop_when_cut_off_seconds: float | None = None


class Desired(Message):
    assignments: tuple[Assignment, ...] = ()
    """All of them: what the agent holds beyond these is disowned, to be stopped and cleaned away."""


# --- What the agent reports ----------------------------------------------------------------------------


class Note(Message):
    """A line of a worker's History, such as "Image pulled, 8.1 GiB in 41 s". Idempotent by `number`."""

    number: int = Field(ge=0, lt=1000)
    at: Epoch
    text: Text = Field(max_length=500)


class Exit(Message):
    kind: Literal[
        "exited",  # the process ran and ended by itself: `code` or `signal`
        "stopped",  # ended because a stop was ordered
        "time_limit",  # stopped by the agent at the time limit
        "cut_off",  # stopped by the agent because the console was out of reach too long
        "not_prepared",  # image, files, drives, port: never started; `message` says what
        "not_started",  # the command could not be executed; `message` says why
        "lost",  # a start marker without a process and without an exit record
    ]
    code: int | None = Field(default=None, ge=-(2**31), lt=2**32)
    signal: int | None = Field(default=None, ge=0, lt=256)
    out_of_memory: bool = False
    message: Text = Field(default="", max_length=500)


class AssignmentReport(Message):
    id: str
    state: Literal["preparing", "ready", "running", "stopping", "ended"]
    detail: Text = Field(default="", max_length=300)
    """What it is doing inside the state: "pulling image, 5.2 of 8.1 GiB"."""
    ready_at: Epoch | None = None
    started_at: Epoch | None = None
    ended_at: Epoch | None = None
    exit: Exit | None = None
    gone: bool = False
    """The whole process tree has ended: only this frees what the assignment holds."""
    log_size: Number = 0
    """Bytes written so far; final once `gone`."""
    notes: tuple[Note, ...] = ()


class Observed(Message):
    inventory: Inventory
    assignments: tuple[AssignmentReport, ...] = ()
    busy_ports: tuple[Annotated[int, Field(ge=1, le=65_535)], ...] = Field(default=(), max_length=1000)
    """TCP ports from 29500 to 29599 in use by something that is not ours."""


class SyncRequest(Message):
    protocol: int
    agent_version: Text = Field(max_length=40)
    boot_id: Text = Field(max_length=64)
    instance: str = Field(max_length=64)
    """New at every start of the agent: two of them alive on one credential are a mistake to be told."""
    sequence: Number
    """Rises with every request of an instance; an older one that arrives late is ignored."""
    sent_at: Epoch
    applied_revision: Number
    wait_seconds: float = Field(default=POLL_SECONDS, ge=0, le=60)
    """0 for a report that wants no wait (a second connection beside the long poll)."""
    address: Text = Field(max_length=64)
    runtime: Literal["docker", "bubblewrap"]
    simulated: bool = False
    digest: str = Field(max_length=64)
    """Of `observed`. Left out when the console has already stored it (`SyncAnswer.stored_digest`)."""
    observed: Observed | None = None


class SyncAnswer(Message):
    protocol: int = PROTOCOL_VERSION
    revision: int
    desired: Desired | None = None
    """None: nothing newer than the applied revision."""
    stored_digest: str | None = None
    """The observation the console holds; another one than the agent's asks for it whole."""


class JoinRequest(Message):
    token: str = Field(max_length=200)
    name: str = Field(max_length=63)
    runtime: Literal["docker", "bubblewrap"]
    agent_version: Text = Field(max_length=40)


class JoinAnswer(Message):
    machine: str
    cluster: str
    credential: str


# --- Logs: a JSON header line, then the chunks' bytes one after another ---------------------------------


class LogChunkHeader(Message):
    assignment: str
    offset: Number
    size: int = Field(ge=0, le=LOG_CHUNK_BYTES)
    at: Epoch


class LogsHeader(Message):
    chunks: tuple[LogChunkHeader, ...] = Field(max_length=LOG_REQUEST_CHUNKS)
    sent_at: Epoch | None = None
    """By the agent's clock: with it the console tells how old each chunk is. Older agents leave it out."""


class LogsAnswer(Message):
    next: dict[str, int]
    """Assignment id -> the offset the console expects next. The agent goes on from there, also backwards."""
    unknown: tuple[str, ...] = ()
    """Assignments that the console doesn't know (any more): their logs may be dropped."""
