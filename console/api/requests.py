"""Small bodies that requests bring. The run document is wire/spec's."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from console.api.bodies import Body
from machines.overrides import LONGEST
from machines.pools import LONGEST_NAME, LONGEST_TITLE, MOST_GPUS
from runs.explaining.moments import moment_read
from wire.names import MAX_LABELS, check_label_value, check_line, has_control_characters
from wire.spec.base import LabelKey, LabelValue, MachineName, Slug, checked

LONGEST_DRAIN = 30 * 86_400


def _plain(text: str) -> str:
    if has_control_characters(text):
        raise ValueError(
            "This has control characters, line breaks or marks that turn text around. Remove them."
        )
    return text


def _moment(value: Any) -> datetime:
    """RFC 3339, with its zone."""
    found = moment_read(value) if isinstance(value, str) and "T" in value.upper() else None
    if found is None:
        message = "Write a time with its zone, such as 2026-12-31T12:00:00Z."
        raise PydanticCustomError("not_a_time", "{sentence}", {"sentence": message})
    return found


FabricName = Annotated[str, Field(min_length=1), checked("label_value", check_label_value)]
PoolName = Annotated[Slug, Field(max_length=LONGEST_NAME)]
PoolTitle = Annotated[str, Field(min_length=1, max_length=LONGEST_TITLE), checked("bad_text", check_line)]
Reason = Annotated[str, Field(max_length=200), checked("bad_text", _plain)]
Title = Annotated[str, Field(min_length=1, max_length=60), checked("bad_text", check_line)]
UserName = Annotated[str, Field(min_length=1, max_length=254), checked("bad_text", check_line)]
Moment = Annotated[
    datetime, BeforeValidator(_moment), WithJsonSchema({"type": "string", "format": "date-time"})
]
LabelChanges = Annotated[
    dict[LabelKey, LabelValue | None],
    Field(max_length=MAX_LABELS, description="Labels to set; null takes one away. The others stay."),
]
WorkspaceRoleName = Literal["viewer", "editor", "admin"]
OrganizationRoleName = Literal["member", "operator", "owner"]


class RunMetadataChange(Body):
    labels: LabelChanges = Field(default_factory=dict)


class RunSpecChange(Body):
    priority: int | None = Field(default=None, ge=-1000, le=1000, description="Higher goes first.")


class RunChange(Body):
    """Parts of a run that can be changed whatever its state; what is left out stays."""

    metadata: RunMetadataChange = Field(default_factory=RunMetadataChange)
    spec: RunSpecChange = Field(default_factory=RunSpecChange)


class MachineMetadataChange(Body):
    name: MachineName | None = Field(default=None, description="Another name, while nothing runs there.")
    labels: LabelChanges = Field(default_factory=dict)


class MachineSpecChange(Body):
    pool: Slug | None = Field(default=None, description="Another pool of the cluster.")


class MachineChange(Body):
    """What is left out stays."""

    metadata: MachineMetadataChange = Field(default_factory=MachineMetadataChange)
    spec: MachineSpecChange = Field(default_factory=MachineSpecChange)


class CordonOrder(Body):
    reason: Reason = Field(default="", description="Shown wherever the machine is.")


class DrainOrder(Body):
    reason: Reason = Field(default="", description="Shown wherever the machine is.")
    within_seconds: int = Field(
        default=0,
        ge=0,
        le=LONGEST_DRAIN,
        description="Workers may go on for so long; then their runs go back to the queue.",
    )


class HealthOrder(Body):
    subject: str = Field(max_length=100, description="`machine`, `gpu <UUID>` or `port <device>:<port>`.")
    health: Literal["healthy", "suspect", "faulty"]
    reason: Reason = Field(min_length=1, description="Shown wherever the health is.")
    lasts_seconds: int = Field(
        gt=0,
        le=int(LONGEST.total_seconds()),
        description="So long it counts; then what the agent says counts again.",
    )


class FabricMetadataChange(Body):
    name: FabricName | None = Field(default=None, description="Another name.")


class FabricSpecChange(Body):
    storage: bool | None = Field(
        default=None, description="Whether it is a storage network, out of placement."
    )


class FabricChange(Body):
    """What is left out stays."""

    metadata: FabricMetadataChange = Field(default_factory=FabricMetadataChange)
    spec: FabricSpecChange = Field(default_factory=FabricSpecChange)


class PoolShare(Body):
    """What a workspace may use of a pool."""

    gpu_cap: int | None = Field(
        default=None, ge=0, le=MOST_GPUS, description="GPUs at most; null: no limit but the pool's size."
    )
    guaranteed_gpus: int = Field(
        default=0, ge=0, le=MOST_GPUS, description="So many are lent to others' preemptible runs only."
    )


PoolShares = Annotated[dict[Slug, PoolShare], Field(description="Workspaces that may use it.")]


class PoolMetadata(Body):
    name: PoolName = Field(description="What runs call it in `node_selection`.")


class PoolSpecOrder(Body):
    title: PoolTitle | None = Field(
        default=None, description="What people read; the name where it is left out."
    )
    workspaces: PoolShares = Field(default_factory=dict)


class PoolOrder(Body):
    metadata: PoolMetadata
    spec: PoolSpecOrder = Field(default_factory=PoolSpecOrder)


class PoolMetadataChange(Body):
    name: PoolName | None = Field(default=None, description="Another name, while no run names it.")


class PoolSpecChange(Body):
    title: PoolTitle | None = None
    workspaces: PoolShares | None = None


class PoolChange(Body):
    """What is left out stays; `workspaces` is replaced as a whole."""

    metadata: PoolMetadataChange = Field(default_factory=PoolMetadataChange)
    spec: PoolSpecChange = Field(default_factory=PoolSpecChange)


class ClusterSpecChange(Body):
    mesh_range: str | None = Field(
        default=None,
        max_length=18,
        description="A private IPv4 range, such as 10.192.0.0/10; all machines get other subnets.",
    )


class ClusterChange(Body):
    """What is left out stays."""

    spec: ClusterSpecChange = Field(default_factory=ClusterSpecChange)


class JoinTokenOrder(Body):
    pool: Slug = Field(description="The pool that the machine will be in.")


class MemberOrder(Body):
    user: UserName = Field(description="User name or e-mail address of a person of the organization.")
    role: WorkspaceRoleName


class MemberChange(Body):
    role: WorkspaceRoleName


class TokenOrder(Body):
    name: Title = Field(description="What it is for.")
    role: WorkspaceRoleName = Field(description="What it may do: not more than its maker.")
    expires_at: Moment | None = Field(default=None, description="Null: it does not expire.")


class OrganizationTokenOrder(Body):
    name: Title = Field(description="What it is for.")
    role: OrganizationRoleName = Field(description="What it may do: not more than its maker.")
    expires_at: Moment | None = Field(default=None, description="Null: it does not expire.")
