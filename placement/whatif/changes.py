"""What may be changed so that a run starts, and what is told about such a change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import numpy as np

from placement.holdings import Holding
from placement.outcome import GroupPlacement, Placement
from placement.snapshot import GPU_SUSPECT

Kind = Literal["request", "cluster", "run"]
Patch = Mapping[str, Any]


class Named(NamedTuple):
    """A holding that a change may end, as the reader may see it."""

    holding: Holding
    name: str
    preemptible: bool


class Code(StrEnum):
    """One kind of change = one code = one sentence (`words_whatif.py`).

    In the order in which they are offered: first the run's own request, what costs it least before what makes it
    smaller or less safe; then the cluster, a switch before a visit to the machine; last what stops or waits for a run.
    """

    EXCLUDE_FEWER = "exclude_fewer"
    OTHER_POOL = "other_pool"
    ANY_POOL = "any_pool"
    ANY_MACHINE = "any_machine"
    FEWER_LABELS = "fewer_labels"
    HEALTHY_ONLY_OFF = "healthy_only_off"
    KEEP_WITHIN = "keep_within"
    SPREAD_OFF = "spread_off"
    INTERCONNECT = "interconnect"
    MIN_GBPS = "min_gbps"
    OTHER_MODEL = "other_model"
    GPU_MEMORY = "gpu_memory"
    MACHINES = "machines"
    MACHINES_FREE = "machines_free"
    NODE_RANGE = "node_range"
    MIN_PER_MACHINE = "min_per_machine"
    LESS_CPU = "less_cpu"
    LESS_MEMORY = "less_memory"
    FIXED_AMOUNTS = "fixed_amounts"
    FEWER_GPUS = "fewer_gpus"
    FEWER_MACHINES = "fewer_machines"
    PREEMPTIBLE = "preemptible"

    UNCORDON = "uncordon"
    UNDRAIN = "undrain"
    SET_FABRIC = "set_fabric"
    SET_RACK = "set_rack"
    SET_NVLINK_DOMAIN = "set_nvlink_domain"
    RAISE_CAP = "raise_cap"
    END_QUARANTINE = "end_quarantine"
    STOP_COPY = "stop_copy"
    UPDATE_AGENT = "update_agent"
    BRING_BACK = "bring_back"
    CLEAR_SUSPECT = "clear_suspect"
    BRING_PORT_UP = "bring_port_up"
    REPAIR_GPU = "repair_gpu"

    WAIT_RESERVED = "wait_reserved"
    END_RUN = "end_run"

    @property
    def kind(self) -> Kind:
        if self in _OF_RUNS:
            return "run"
        return "cluster" if self in _OF_CLUSTER else "request"

    @property
    def rank(self) -> int:
        """Its place in the order above."""
        return _RANK[self]


_OF_CLUSTER = frozenset(
    {
        Code.UNCORDON,
        Code.UNDRAIN,
        Code.SET_FABRIC,
        Code.SET_RACK,
        Code.SET_NVLINK_DOMAIN,
        Code.RAISE_CAP,
        Code.END_QUARANTINE,
        Code.STOP_COPY,
        Code.UPDATE_AGENT,
        Code.BRING_BACK,
        Code.CLEAR_SUSPECT,
        Code.BRING_PORT_UP,
        Code.REPAIR_GPU,
    }
)
_OF_RUNS = frozenset({Code.WAIT_RESERVED, Code.END_RUN})
_RANK = {code: number for number, code in enumerate(Code)}


@dataclass(frozen=True)
class Change:
    """One change to one group's request, to the cluster, or to what other runs hold."""

    code: Code
    numbers: Mapping[str, Any]
    """What the sentence needs; of a change to the cluster or a run also what it is done to."""
    group: str | None = None
    """Name of the group whose request changes ("" in a run of one group); None for any other change."""
    patch: Patch = field(default_factory=dict)
    """For a change to the request: fields of the run document below `spec`, as a JSON merge patch."""

    @property
    def key(self) -> tuple[str, str | None, str]:
        """Equal for changes that are the same."""
        return (self.code, self.group, repr(sorted(self.numbers.items())))

    def as_data(self) -> dict[str, Any]:
        return {
            "code": self.code.value,
            "kind": self.code.kind,
            "group": self.group,
            "numbers": dict(self.numbers),
        }


@dataclass(frozen=True)
class WhatIf:
    """A change, or two together, with which the engine places the gang now."""

    changes: tuple[Change, ...]
    placement: Placement

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key of the fixed order: single changes before two together; see `Code`."""
        things = sum(len(change.numbers.get("runs", (change,))) for change in self.changes)
        return (things, max(change.code.rank for change in self.changes))

    @property
    def document_patch(self) -> dict[str, Any] | None:
        """What to merge into the `spec` of the run document (RFC 7396); None when the request stays as it is.

        Groups of a gang are told by name, where the document has a list: `{"worker_groups": {"trainer": {…}}}`.
        """
        merged: dict[str, Any] = {}
        for change in self.changes:
            merged = merge(merged, change.patch)
        return merged or None

    def as_data(self) -> dict[str, Any]:
        """Codes and numbers only, JSON-serialisable; `words_whatif.py` makes the sentences from it."""
        return {
            "changes": [change.as_data() for change in self.changes],
            "document_patch": self.document_patch,
            "placement": {
                "verdict": self.placement.verdict.code,
                "groups": [_summary(group) for group in self.placement.groups],
            },
        }


class WhatIfs(tuple[WhatIf, ...]):  # noqa: SLOT001  (a tuple can't have slots)
    """The offers, in order; `tried` counts all changes put through the engine, so that the rest can be told."""

    tried: int

    @classmethod
    def of(cls, offers: list[WhatIf], tried: int) -> "WhatIfs":
        made = cls(offers)
        made.tried = tried
        return made


def _summary(group: GroupPlacement) -> dict[str, Any]:
    return {
        "group": group.name,
        "verdict": group.verdict.code,
        "shape": {"machines": group.shape.machines, "gpus": group.shape.gpus},
        "machines": group.machine_names,
        "suspects": _suspects(group),
    }


def _suspects(group: GroupPlacement) -> list[dict[str, Any]]:
    """GPUs with a warning sign that would be used, per machine."""
    ask = group.outcome.ask
    if ask.group.healthy_only:
        return []
    suspect = (ask.snapshot.gpu_state[group.machines] & GPU_SUSPECT) != 0
    told = []
    for place in np.flatnonzero(suspect.any(axis=1)).tolist():
        rank = group.ranks[place]
        marked = ask.topology.gpu_index[rank.machine][suspect[place]].tolist()
        if used := [gpu for gpu in rank.gpus if gpu in marked]:
            told.append({"machine": rank.machine_name, "gpus": used})
    return told


def merge(one: Patch, other: Patch) -> dict[str, Any]:
    """Both patches as one; where both set a field the other one's value holds."""
    merged = dict(one)
    for name, value in other.items():
        before = merged.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[name] = merge(before, value)
        else:
            merged[name] = value
    return merged
