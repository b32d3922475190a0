"""The placement engine: pure functions on arrays over all machines. numpy and the standard library, nothing else.

`build_snapshot(facts)` → `Snapshot`; `place(snapshot, request)` → `Placement` or `Refusal`; `possible_ever` asks
the same of the empty, sound cluster, `earliest` of the cluster as runs end, `preempt` of the cluster with runs stopped.
No clock, no randomness, no logging: same inputs, same answer. `words.py` makes the sentences.
"""

from placement.build import build_snapshot
from placement.ever import Change, Impossible, possible_ever
from placement.facts import GpuFacts, MachineFacts, MachineState, PortFacts
from placement.future import Earliest, earliest
from placement.holdings import Hold, Holding
from placement.outcome import Cause, GroupPlacement, Placement, Rank, Refusal
from placement.place import fits, place
from placement.preempt import Candidate, Preemption, preempt
from placement.request import GroupRequest, Request, Selection
from placement.room import DomainCount
from placement.rules import MachineOutcome, Rule
from placement.score import Score
from placement.shapes import Shape
from placement.snapshot import Snapshot
from placement.verdicts import Verdict

__all__ = [
    "Candidate",
    "Cause",
    "Change",
    "DomainCount",
    "Earliest",
    "GpuFacts",
    "GroupPlacement",
    "GroupRequest",
    "Hold",
    "Holding",
    "Impossible",
    "MachineFacts",
    "MachineOutcome",
    "MachineState",
    "Placement",
    "PortFacts",
    "Preemption",
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
    "earliest",
    "fits",
    "place",
    "possible_ever",
    "preempt",
]
