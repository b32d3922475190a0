"""Runs and everything that happens to them.

Locks are always taken in the order Run, RunAttempt, Worker, Machine (design: data model).
"""

from runs.models.blame import MachineFailure
from runs.models.metrics import MetricRest, MetricSample
from runs.models.run import Run, RunEvent, RunQuerySet, WorkloadName
from runs.models.scheduling import (
    Claim,
    DecisionRecord,
    PassRecord,
    Reservation,
    RunWait,
    TopologyRecord,
    WorkspaceUsage,
)
from runs.models.work import (
    Allocation,
    Assignment,
    AssignmentQuerySet,
    DriveExport,
    LogChunk,
    RunAttempt,
    Worker,
    WorkerEvent,
)

__all__ = [
    "Allocation",
    "Assignment",
    "AssignmentQuerySet",
    "Claim",
    "DecisionRecord",
    "DriveExport",
    "LogChunk",
    "MachineFailure",
    "MetricRest",
    "MetricSample",
    "PassRecord",
    "Reservation",
    "Run",
    "RunAttempt",
    "RunEvent",
    "RunQuerySet",
    "RunWait",
    "TopologyRecord",
    "Worker",
    "WorkerEvent",
    "WorkloadName",
    "WorkspaceUsage",
]
