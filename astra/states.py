"""States and roles as the API names them, and the sets the command line decides by."""

from enum import StrEnum


class RunState(StrEnum):
    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"


RUN_ENDED = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED})
WORKER_ENDED = frozenset({"Succeeded", "Failed", "Stopped", "Lost"})


class MachineState(StrEnum):
    QUARANTINED = "Quarantined"
    UNREACHABLE = "Unreachable"
    CONTESTED = "Contested"
    DRAINING = "Draining"
    CORDONED = "Cordoned"
    READY = "Ready"


class WorkspaceRole(StrEnum):
    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"
