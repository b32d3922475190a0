"""The placement engine: pure functions on arrays over all machines. numpy and the standard library, nothing else.

`build_snapshot(facts)` → `Snapshot`; `place(snapshot, request)` → `Placement` or `Refusal`; `possible_ever` asks
the same of the empty, sound cluster. No clock, no randomness, no logging: same inputs, same answer. `words.py` makes
the sentences.
"""

from placement.build import build_snapshot
from placement.ever import Change, Impossible, possible_ever
from placement.facts import GpuFacts, MachineFacts, MachineState, PortFacts
from placement.outcome import (
    Cause,
    DomainCount,
    GroupPlacement,
    MachineOutcome,
    Placement,
    Rank,
    Refusal,
    Rule,
    Score,
    Shape,
)
from placement.place import place
from placement.request import GroupRequest, Request, Selection
from placement.snapshot import Snapshot
from placement.verdicts import Verdict

__all__ = [
    "Cause",
    "Change",
    "DomainCount",
    "GpuFacts",
    "GroupPlacement",
    "GroupRequest",
    "Impossible",
    "MachineFacts",
    "MachineOutcome",
    "MachineState",
    "Placement",
    "PortFacts",
    "Rank",
    "Refusal",
    "Request",
    "Rule",
    "Score",
    "Selection",
    "Shape",
    "Snapshot",
    "Verdict",
    "build_snapshot",
    "place",
    "possible_ever",
]
