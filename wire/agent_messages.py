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

from pydantic import Field

from wire.assignments import Desired
from wire.inventory import Inventory
from wire.mesh import MeshReport
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

SYNC_PATH = "/agent/v1/sync"
LOGS_PATH = "/agent/v1/logs"
JOIN_PATH = "/agent/v1/join"


# --- What the agent reports ----------------------------------------------------------------------------


IMAGE_PULLED = "Image pulled"
"""How the note about a pulled image begins: timelines look for it."""


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
