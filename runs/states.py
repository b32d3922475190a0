"""States of runs, attempts and workers, their sets and their looks.

A state says where something is; a reason (`runs/reasons.py`) says why. Code tests membership in the sets here.
"""

from django.db import models

from common.looks import Look


class RunState(models.TextChoices):
    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"


RUN_ENDED = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED})
RUN_ACTIVE = frozenset({RunState.STARTING, RunState.RUNNING, RunState.STOPPING})


class Wanted(models.TextChoices):
    """What the owner wants of the run. Only ever moves down this list."""

    RUN = "run"
    STOP = "stop"
    DELETE = "delete"


class WaitKind(models.TextChoices):
    """The three kinds of cause for which a run waits, never mixed; `never` is a fit that no waiting changes."""

    ORDER = "order"
    FIT = "fit"
    POLICY = "policy"
    NEVER = "never"


class WorkerState(models.TextChoices):
    """Of a worker, and of each of its assignments."""

    PENDING = "Pending"
    PLACED = "Placed"
    PREPARING = "Preparing"
    READY = "Ready"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"
    LOST = "Lost"


WORKER_ENDED = frozenset({WorkerState.SUCCEEDED, WorkerState.FAILED, WorkerState.STOPPED, WorkerState.LOST})
ASSIGNMENT_STATES = frozenset(WorkerState) - {WorkerState.PENDING}


class Phase(models.TextChoices):
    """What an agent shall do with an assignment. Only ever rises."""

    PREPARE = "prepare"
    CHECK = "check"
    """Run the check that the members run together; only where they do."""
    START = "start"
    STOP = "stop"


class AttemptState(models.TextChoices):
    STARTING = "starting"
    """Placed; members prepare and meet at the barrier."""
    OPENED = "opened"
    """The barrier is open; not all members have reported that they run."""
    RUNNING = "running"
    ENDING = "ending"
    """Its outcome is decided; members are being stopped."""
    ENDED = "ended"


class Outcome(models.TextChoices):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """A worker that ran failed or was lost: counts as a restart."""
    VOIDED = "voided"
    """It never ran as a whole: back to the queue, not counted."""
    STOPPED = "stopped"
    TIME_LIMIT = "time_limit"
    REQUEUED = "requeued"
    """Drained or preempted: back to the queue, not counted."""


class Fault(models.TextChoices):
    """What a machine had to do with the end of an attempt; the label follows a run's name."""

    LOST = "lost", "its worker was lost"
    DEVICE = "device", "its GPUs failed"
    NETWORK = "network", "its network failed"
    HUNG = "hung", "its worker hung"
    SLOW = "slow", "it was not ready in time"
    PREPARE = "prepare", "it could not prepare the worker"
    PROGRAM = "program", "the program failed there"


LOOKS: dict[str, Look] = {
    RunState.PENDING: Look("wait", "clock"),
    RunState.STARTING: Look("move", "ring"),
    RunState.RUNNING: Look("run", "play"),
    RunState.STOPPING: Look("leave", "half-square"),
    RunState.SUCCEEDED: Look("good", "tick"),
    RunState.FAILED: Look("bad", "octagon"),
    RunState.STOPPED: Look("off", "square"),
    WorkerState.PLACED: Look("move", "pin"),
    WorkerState.PREPARING: Look("move", "tray"),
    WorkerState.READY: Look("move", "flag"),
    WorkerState.LOST: Look("bad", "broken-link"),
}
