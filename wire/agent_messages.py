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

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import Field

from wire.machine_facts import CheckReport, Health, HealthEvent, HostReport, SplitGpu
from wire.mesh import MeshOrder, MeshReport, WorkerMesh
from wire.message import Epoch, Message, Number, Text

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

Feature = Literal[
    "drives", "hang_detection", "network_drives", "preflight", "probes", "secrets", "warn_signal"
]
"""Parts of an assignment that not every agent in use carries out: each says which ones it does."""
FEATURES: frozenset[Feature] = frozenset(get_args(Feature))
FEATURE_FIELDS: Mapping[Feature, str] = {
    "drives": "mounts",
    "hang_detection": "hang_after_seconds",
    "network_drives": "network_mounts",
    "preflight": "preflight",
    "probes": "probes",
    "secrets": "secrets",
    "warn_signal": "warn_signal_seconds",
}
"""The field of `Assignment` that asks for each, when it is neither None nor empty."""
FEATURE_NAMES: Mapping[Feature, str] = {
    "drives": "drives",
    "hang_detection": "hang detection",
    "network_drives": "drives on other machines",
    "preflight": "checks before the start",
    "probes": "probes",
    "secrets": "secrets",
    "warn_signal": "a warning before the time limit",
}
SHORTEST_SECRET = 8
"""Bytes. A shorter value can't be masked in a log: it would turn up everywhere, and "***" would tell it."""

SYNC_PATH = "/agent/v1/sync"
LOGS_PATH = "/agent/v1/logs"
JOIN_PATH = "/agent/v1/join"


# --- What a machine has -------------------------------------------------------------------------------


class GpuReport(Message):
    index: int = Field(ge=0, lt=1024)
    uuid: Text = Field(min_length=1, max_length=96)
    product: Text = Field(max_length=128)
    memory_bytes: int = Field(ge=0, lt=2**50)
    numa_node: int | None = Field(default=None, ge=-1, lt=2**15)
    nvlink_domain: Text | None = Field(default=None, max_length=80)
    """Cluster UUID and clique of a multi-node NVLink domain; None on machines that have none."""
    health: Health = "healthy"
    evidence: Text = ""
    pci_bus: Text = Field(default="", max_length=32)


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
    physical_state: Text = Field(default="", max_length=32)
    """As sysfs says: LinkUp, Disabled, Polling."""
    guid: Text = Field(default="", max_length=40)
    lid: int = Field(default=0, ge=0, lt=2**32)
    sm_lid: int = Field(default=0, ge=0, lt=2**32)
    """0 for both: none was given."""
    subnet_prefix: Text = Field(default="", max_length=40)
    """The upper half of an InfiniBand port's first GID; separate fabrics often share the default one."""
    gids: tuple[Annotated[Text, Field(max_length=64)], ...] = Field(default=(), max_length=64)
    """Of RoCE ports with their kind: "fe80:…:0001 (RoCE v2)"."""
    numa_node: int | None = Field(default=None, ge=-1, lt=2**15)
    health: Health = "healthy"
    evidence: Text = Field(default="", max_length=300)


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
    features: tuple[Annotated[Text, Field(max_length=40)], ...] = Field(default=(), max_length=64)
    """The `Feature`s that this agent carries out, and perhaps newer ones. Older agents send none."""
    host: HostReport = HostReport()
    split_gpus: tuple[SplitGpu, ...] = Field(default=(), max_length=1024)
    """GPUs in MIG mode; they are not among `gpus`."""
    gpus_as_of: Epoch | None = None
    """The GPUs' driver doesn't answer: what is said of GPUs is so old. None: it is current."""
    health: Health = "healthy"
    """Of the machine as a whole: its driver, its daemons. GPUs and ports have their own."""
    evidence: Text = Field(default="", max_length=300)
    health_events: tuple[HealthEvent, ...] = Field(default=(), max_length=64)
    """The newest ones, oldest first; they stay in the list, so that one lost message loses none."""
    checks: tuple[CheckReport, ...] = Field(default=(), max_length=64)


# --- What the agent should do --------------------------------------------------------------------------


class FileMount(Message):
    path: str
    value: str
    mode: int = 0o444


class DriveMount(Message):
    """A directory of the machine that the worker sees at `mount_path`."""

    drive: str = ""
    """The drive's name, for messages."""
    source: str
    """The drive's directory on this machine; the agent's own configuration must allow it."""
    mount_path: str
    read_only: bool = True
    sub_path: str = ""
    """Below `source`; nothing on the way, symbolic links included, may lead out of it."""


class NetworkMount(DriveMount):
    """A drive that lies on another machine, which exports it over NFSv4: `source` is its directory there."""

    machine: str
    address: str
    """Of that machine."""


class Export(Message):
    """A drive of this machine that workers on others mount."""

    drive: str = ""
    path: str
    """The agent's own configuration must allow it."""
    client: str
    """The address of the machine that may mount it."""
    read_only: bool = True


class Secret(Message):
    """A value that reaches the worker and nobody else: as a variable (`env`) or as a file of mode 0400 (`path`).

    Every value of at least SHORTEST_SECRET bytes is masked in the worker's log.
    """

    name: str = ""
    env: str | None = None
    path: str | None = None
    value: str | None = Field(default=None, repr=False)
    """None: withheld, in what an agent has kept on its disk; it asks the console for it again."""


class RegistryLogin(Message):
    """What the machine signs in to a registry with, to pull the worker's image. The worker never sees it."""

    name: str = ""
    """The credential's name, for messages."""
    registry: str = ""
    username: str = ""
    password: str | None = Field(default=None, repr=False)
    """None: withheld, as a secret's value is."""


class HttpTarget(Message):
    port: int = Field(ge=1, le=65_535)
    path: str = "/"


class Probe(Message):
    """One way to look at a worker, repeated. Exactly one of `exec`, `tcp` and `http` is given."""

    exec: tuple[str, ...] | None = None
    """Command and arguments, run inside the worker with its environment; exit code 0 is success."""
    tcp: int | None = Field(default=None, ge=1, le=65_535)
    """A port on which the worker must accept a connection."""
    http: HttpTarget | None = None
    """A GET request that must be answered with 200 to 399."""
    period_seconds: float = Field(default=10, ge=0.01)
    timeout_seconds: float = Field(default=5, ge=0.01)
    failure_threshold: int = Field(default=3, ge=1)


class Probes(Message):
    startup: Probe | None = None
    """Until it has succeeded the others wait; its failure is the worker's."""
    readiness: Probe | None = None
    """Only shown."""
    liveness: Probe | None = None
    """Its failure is the worker's."""

    def __bool__(self) -> bool:
        return any((self.startup, self.readiness, self.liveness))


class Preflight(Message):
    """What is checked before the worker is ready: this machine's links, or an all-reduce over the gang as well."""

    kind: Literal["links", "allreduce"]
    meets: bool = False
    """The members also check together: each says when it could (`AssignmentReport.checkable_at`), and all do when
    the phase becomes `check`."""
    machines: tuple[str, ...]
    """Of all members in the order of their ranks."""
    rank: int = Field(ge=0)
    """Of this worker among them."""
    address: str
    """Of the leader's machine."""
    port: int = Field(ge=1, le=65_535)
    """The rendezvous port, where the members meet."""
    rdma_ports: dict[str, float] = Field(default_factory=dict)
    """Those that the worker is to use, "mlx5_0:1", and their Gb/s when it was placed."""
    token: str = ""
    """By which members know each other: anybody may connect to the port."""


class Assignment(Message):
    """One worker of one attempt on this machine. `phase` only ever rises: prepare, check, start, stop.

    `check` comes only where `preflight` says that the members meet.
    """

    id: str
    phase: Literal["prepare", "check", "start", "stop"]
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
    warn_signal_seconds: float | None = None
    """The stop signal is also sent so long before the time limit, once."""
    hang_after_seconds: float | None = None
    """A worker that writes nothing for so long while its GPUs are idle has failed as hung."""
    probes: Probes = Probes()
    preflight: Preflight | None = None
    mounts: tuple[DriveMount, ...] = ()
    network_mounts: tuple[NetworkMount, ...] = ()
    secrets: tuple[Secret, ...] = ()
    registry: RegistryLogin | None = None
    names: dict[str, str] = Field(default_factory=dict)
    """Of the run and its workers → address: how the members of a gang find each other, on any network."""
    mesh: WorkerMesh | None = None
    """None: the worker shares the machine's network."""

    def withheld(self) -> str:
        """Which secrets and which registry credential have no value here, in words; empty when all have."""
        names = [secret.name for secret in self.secrets if secret.value is None]
        missing = [f"the secret {', '.join(names)}"] if names else []
        if self.registry is not None and self.registry.password is None:
            missing.append(f"the registry credential {self.registry.name}")
        return " and ".join(missing)

    def stored(self) -> "Assignment":
        """As it may be written to a disk: without the values of its secrets."""
        secrets = tuple(secret.model_copy(update={"value": None}) for secret in self.secrets)
        registry = self.registry and self.registry.model_copy(update={"password": None})
        return self.model_copy(update={"secrets": secrets, "registry": registry})


class Desired(Message):
    assignments: tuple[Assignment, ...] = ()
    """All of them: what the agent holds beyond these is disowned, to be stopped and cleaned away."""
    mesh: MeshOrder | None = None
    """None: the machine has no place on the mesh."""
    exports: tuple[Export, ...] = ()
    """All of them: what is exported beyond these is so no longer."""

    def stored(self) -> "Desired":
        """As it may be written to a disk: without the values of secrets."""
        return self.model_copy(update={"assignments": tuple(each.stored() for each in self.assignments)})

    def withheld(self) -> bool:
        """Whether the value of a secret that is still of use is missing here."""
        return any(assignment.withheld() for assignment in self.assignments if assignment.phase != "stop")


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
        # Only of assignments that ask for it, so that no older console gets to see them:
        "probe_failed",  # stopped by the agent, a startup or liveness probe failed: `message` says how
        "hung",  # stopped by the agent, neither output nor busy GPUs for too long: `message` says how long
        "preflight_failed",  # never started: a check before it failed, `message` says which and where
    ]
    code: int | None = Field(default=None, ge=-(2**31), lt=2**32)
    signal: int | None = Field(default=None, ge=0, lt=256)
    out_of_memory: bool = False
    message: Text = Field(default="", max_length=500)
    cause: Text = Field(default="", max_length=300)
    """The line of the log that says most likely why the worker failed."""
    cause_at: Number | None = None
    """Where that line begins in the log, in bytes."""
    machines: tuple[Annotated[Text, Field(max_length=63)], ...] = Field(default=(), max_length=1000)
    """The machines at fault, where a check has found others than the worker's own."""


class AssignmentReport(Message):
    id: str
    state: Literal["preparing", "ready", "running", "stopping", "ended"]
    detail: Text = Field(default="", max_length=300)
    """What it is doing inside the state: "pulling image, 5.2 of 8.1 GiB"."""
    checkable_at: Epoch | None = None
    """Since when only the check that the members run together is left before it is prepared."""
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
    mesh: MeshReport | None = None
    """None: no mesh with this runtime."""


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
    warning: Text = ""
    """For whoever looks after the machine: what is wrong with this agent's standing."""


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
