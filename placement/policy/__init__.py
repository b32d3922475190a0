"""The pass as a pure function: who goes first, what is reserved, what policy forbids, whom a preemption stops.

`Cycle` judges one job after the other against one snapshot; whoever drives it applies the placements (Django in
`runs/scheduling/`, virtual time in `benchmarks/`). Times are epoch seconds, given from outside.
"""

from placement.policy.cycle import Cycle
from placement.policy.jobs import (
    Decision,
    Job,
    Kind,
    Memory,
    Patient,
    Placed,
    Refused,
    Reserved,
    Running,
    Share,
)
from placement.policy.quotas import pools_of

__all__ = [
    "Cycle",
    "Decision",
    "Job",
    "Kind",
    "Memory",
    "Patient",
    "Placed",
    "Refused",
    "Reserved",
    "Running",
    "Share",
    "pools_of",
]
