"""Shape of an explanation, for the schema: what `runs/explanations.py` puts together."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from console.api.names import RunStateName


class CauseAnswer(BaseModel):
    """Order, fit or policy, each by itself."""

    kind: Literal["order", "fit", "policy"]
    met: bool = Field(description="False: it is in the way.")
    text: str


class AheadAnswer(BaseModel):
    run: str = Field(description="`another workspace` for a run that one may not see.")
    priority: int | None = Field(description="null for a run that one may not see.")
    position: int


class ReservationAnswer(BaseModel):
    machines: list[str]
    at: datetime | None = Field(description="When it can start at the latest; null: not known.")


class QueueAnswer(BaseModel):
    position: int = Field(description="In the order of the last pass, from 1.")
    text: str
    ahead: list[AheadAnswer] = Field(description="Who goes first, as far as told one by one.")
    reservation: ReservationAnswer | None = Field(description="What is kept for this run.")


class ChangeAnswer(BaseModel):
    """A change, or two together, that the engine has tried."""

    code: str = Field(description="Kinds of the changes, joined by +; never change.")
    kind: str = Field(description="Of what: `request`, `cluster`, `run`, or `pair` where they differ.")
    text: str = Field(description="What to change.")
    result: str = Field(description="What that gives.")
    patch: dict[str, Any] | None = Field(description="To be merged into the document (RFC 7396).")
    action: list[dict[str, Any]] | None = Field(description="What to do to machines, pools or runs.")
    placement: dict[str, Any] | None = Field(description="Where the run would start now.")


class WhenAnswer(BaseModel):
    at: datetime | None = Field(description="At the latest; null: no time can be given.")
    text: str


class DomainAnswer(BaseModel):
    kind: Literal["cluster", "fabric", "rack", "nvlink_domain"]
    name: str
    on_fabric: str | None
    found: int = Field(description="Machines that could take a worker now.")
    needed: int
    machines: list[str]


class MachinesAnswer(BaseModel):
    """Machines about which the same is to be said."""

    group: str = Field(description="The main cause, in words.")
    codes: list[str] = Field(description="Every rule that refuses them, the main one first; none: ready.")
    numbers: dict[str, Any] = Field(description="By code.")
    machines: list[str]
    text: str


class StretchAnswer(BaseModel):
    """A stretch of the wait with one cause."""

    kind: Literal["order", "fit", "policy", "never"]
    cause: str
    text: str
    since: datetime
    until: datetime | None
    seconds: int


class ExplanationAnswer(BaseModel):
    """Why a run waits, or why it landed where it did, from the very data that decided.

    Parts that do not apply are empty, null or left out.
    """

    run: str
    worker: str = ""
    state: RunStateName
    kind: Literal["", "order", "fit", "policy", "never", "placed"] = ""
    cause: str = ""
    headline: str = Field(description="One sentence.")
    pass_: int | None = Field(None, alias="pass", description="Number of the pass that judged so.")
    at: datetime | None = Field(None, description="When it did.")
    causes: list[CauseAnswer] = []
    queue: QueueAnswer | None = None
    changes: list[ChangeAnswer] = Field(
        [], description="What would start it now; of one that never fits, ever."
    )
    changes_tried: int = 0
    when: WhenAnswer | None = None
    domains: list[DomainAnswer] = []
    domains_left_out: int = 0
    machines: list[MachinesAnswer] = Field([], description="Nearest first.")
    placement: dict[str, Any] | None = Field(None, description="Of a run that is placed: where.")
    policy: dict[str, Any] | None = Field(None, description="Quotas and their use, by pool.")
    history: list[StretchAnswer] = Field([], description="What it waited for, oldest first.")
