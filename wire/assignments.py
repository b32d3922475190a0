"""What an agent should do: the workers of its machine, the mesh, the drives that others mount."""

from collections.abc import Mapping
from typing import Literal, get_args

from pydantic import Field

from wire.mesh import MeshOrder, WorkerMesh
from wire.message import Message

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
