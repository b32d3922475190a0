"""Bodies and answers of secrets, registry credentials and drives. What is secret only ever comes in."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from console.api.bodies import Body
from tenancy.registries import LONGEST_REGISTRY, LONGEST_USERNAME
from tenancy.secrets import LARGEST_SECRET
from wire.assignments import SHORTEST_SECRET
from wire.names import check_line
from wire.spec.base import AbsolutePath, MachineName, Slug, checked

MOST_BYTES = 8 * LARGEST_SECRET
"""Of a body with a secret: JSON may write every character of it with six."""

DriveKindName = Literal["shared", "machine"]
ReachName = Literal["local", "network"]
Access = Literal["read", "write"]

Registry = Annotated[
    str,
    Field(max_length=LONGEST_REGISTRY, description="Its host, with a port where it needs one: `nvcr.io`."),
]
UserName = Annotated[
    str,
    Field(max_length=LONGEST_USERNAME, description="Who signs in."),
    checked("bad_text", check_line),
]
Workspaces = Annotated[
    dict[Slug, Access],
    Field(description="Workspaces that may use it, and whether they may only read it or write to it too."),
]


class SecretValue(Body):
    value: str = Field(
        max_length=LARGEST_SECRET,
        repr=False,
        description=f"At least {SHORTEST_SECRET} bytes, so that it can be masked in logs. It is never shown again.",
    )


class SecretOrder(SecretValue):
    name: Slug = Field(description="What runs call it in `secret_refs`.")


class CredentialChange(Body):
    """What is left out stays."""

    registry: Registry | None = None
    username: UserName | None = None
    secret: str | None = Field(
        default=None, max_length=LARGEST_SECRET, repr=False, description="Password or token."
    )


class CredentialOrder(Body):
    name: Slug = Field(description="What runs call it in `registry_credential`.")
    registry: Registry
    username: UserName
    secret: str = Field(
        max_length=LARGEST_SECRET, repr=False, description="Password or token. It is never shown again."
    )


class DriveOrder(Body):
    name: Slug = Field(description="What runs call it in `datavolume_refs`.")
    kind: DriveKindName = Field(
        description="`shared`: the same path on every machine of the cluster or pool; `machine`: on one machine."
    )
    path: AbsolutePath = Field(description="The directory on the machines; their agents must allow it.")
    pool: Slug | None = Field(
        default=None, description="Of a shared drive: the pool that has it, if not all."
    )
    machine: MachineName | None = Field(default=None, description="The machine that it lies on.")
    reach: ReachName = Field(
        default="local", description="Whether workers on other machines may mount a machine's drive."
    )
    workspaces: Workspaces = Field(default_factory=dict)


class DriveChange(Body):
    """What is left out stays; `workspaces` is replaced as a whole."""

    path: AbsolutePath | None = None
    reach: ReachName | None = None
    workspaces: Workspaces | None = None


class SecretAnswer(BaseModel):
    """A secret, without its value."""

    name: str
    created_at: datetime
    changed_at: datetime
    changed_by: str


class CredentialAnswer(BaseModel):
    """A registry credential, without its password."""

    name: str
    registry: str
    username: str
    created_at: datetime
    changed_at: datetime
    changed_by: str


class DriveAnswer(BaseModel):
    name: str
    kind: DriveKindName
    path: str
    pool: str | None
    machine: str | None
    reach: ReachName | None = Field(description="Null for a shared drive.")
    workspaces: dict[str, Access]
    created_at: datetime
    changed_at: datetime
    changed_by: str


class OpenDriveAnswer(BaseModel):
    """A drive that the workspace may use."""

    name: str
    cluster: str
    access: Access
    kind: DriveKindName
    pool: str | None = Field(description="The pool whose machines have it; null: all machines, or one.")
    machine: str | None = Field(description="The machine that it lies on; null for a shared drive.")
