"""Runs as rows: with names, workers, attempt, assignments, what they hold, and their histories."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from console.seeding.asking import Ask
from console.seeding.copying import rows_copy
from console.seeding.zones import CORES_PER_GPU, MEMORY_PER_GPU
from machines.models import Gpu, Machine
from runs.models import (
    Allocation,
    Assignment,
    Run,
    RunAttempt,
    RunEvent,
    Worker,
    WorkerEvent,
    WorkloadName,
)
from runs.states import RUN_ENDED, AttemptState, Outcome, Phase, RunState, WorkerState

Reason = dict[str, Any]
Place = tuple[Machine, Sequence[Gpu]]
"""A worker's machine and its GPUs there."""
PORT = 29500

ATTEMPTS = {
    RunState.STARTING: AttemptState.STARTING,
    RunState.RUNNING: AttemptState.RUNNING,
    RunState.STOPPING: AttemptState.ENDING,
}
OUTCOMES = {
    RunState.SUCCEEDED: Outcome.SUCCEEDED,
    RunState.FAILED: Outcome.FAILED,
    RunState.STOPPED: Outcome.STOPPED,
    RunState.STOPPING: Outcome.STOPPED,
}
WORKERS = {RunState.STARTING: WorkerState.READY, RunState.PENDING: WorkerState.PENDING}
"""Where the workers' state has another name than the run's."""
EXITS: dict[str, Reason] = {
    RunState.SUCCEEDED: {"kind": "exited", "code": 0},
    RunState.FAILED: {"kind": "exited", "code": 1},
    RunState.STOPPED: {"kind": "stopped", "code": 143},
}
STEPS = (RunState.PENDING, RunState.STARTING, RunState.RUNNING, RunState.STOPPING)


@dataclass(slots=True)
class Work:
    """A run with where it is or was; `places` is empty while it waits."""

    run: Run
    ask: Ask
    places: Sequence[Place] = ()
    network: str = ""
    fabric: str = ""
    workers: list[Worker] = field(default_factory=list)
    attempt: RunAttempt | None = None

    @property
    def state(self) -> RunState:
        return RunState(self.run.state)

    @property
    def placed_at(self) -> datetime:
        """Of a run that was placed."""
        return self.run.placed_at or self.run.queued_at

    @property
    def ended(self) -> bool:
        return self.run.state in RUN_ENDED


def works_store(works: Sequence[Work]) -> None:
    """Stores new runs with everything that belongs to them."""
    rows_copy([work.run for work in works])
    for work in works:
        work.workers = [_worker(work, rank) for rank in range(work.ask.machines)]
    rows_copy([worker for work in works for worker in work.workers])
    rows_copy([name for work in works for name in _names(work)])
    rows_copy([event for work in works for event in _run_events(work)])
    _placed_store([work for work in works if work.places])


def _placed_store(works: Sequence[Work]) -> None:
    for work in works:
        work.attempt = _attempt(work)
    rows_copy([work.attempt for work in works if work.attempt])
    assignments = [each for work in works for each in _assignments(work)]
    rows_copy(assignments)
    rows_copy([event for each in assignments for event in _worker_events(each)])
    held = [each for each in assignments if each.gone_at is None]
    gpus = {(work.attempt, rank): place[1] for work in works for rank, place in enumerate(work.places)}
    rows_copy([row for each in held for row in _allocations(each, gpus[each.attempt, each.worker.rank])])


def _worker(work: Work, rank: int) -> Worker:
    return Worker(
        run=work.run,
        rank=rank,
        group_rank=rank,
        name=f"{work.run.name}-{rank}",
        state=WORKERS.get(work.state, work.run.state),
        reason=_worker_reason(work, rank) if work.places else {},
    )


def _worker_reason(work: Work, rank: int) -> Reason:
    machine = work.places[rank][0].name
    if work.ended:
        return {"code": "exited", "machine": machine, "exit": EXITS[work.state]}
    if work.state == RunState.STARTING:
        return {"code": "ready", "gang": work.ask.machines > 1}
    code = "worker_stopping" if work.state == RunState.STOPPING else "worker_running"
    return {"code": code, "machine": machine}


def _names(work: Work) -> Iterator[WorkloadName]:
    for name in (work.run.name, *(worker.name for worker in work.workers)):
        yield WorkloadName(workspace=work.run.workspace, name=name, run=work.run)


def _run_events(work: Work) -> Iterator[RunEvent]:
    """One for each state that it went through."""
    run, count = work.run, work.ask.machines
    at = {RunState.PENDING: run.queued_at, RunState.STARTING: run.placed_at, RunState.RUNNING: run.started_at}
    said: dict[RunState, Reason] = {
        RunState.PENDING: {"code": "queued"},
        RunState.STARTING: {"code": "starting", "ready": 0, "workers": count},
        RunState.RUNNING: {"code": "running", "running": count, "workers": count},
    }
    for state, when in at.items():
        if when is not None:
            no = 0 if state == RunState.PENDING else run.attempt_no
            yield RunEvent(run=run, at=when, attempt_no=no, state=state, reason=said[state])
    if work.ended or work.state == RunState.STOPPING:
        when = run.ended_at or run.started_at or run.queued_at
        yield RunEvent(run=run, at=when, attempt_no=run.attempt_no, state=run.state, reason=run.reason)


def _attempt(work: Work) -> RunAttempt:
    run = work.run
    return RunAttempt(
        run=run,
        number=run.attempt_no,
        state=ATTEMPTS.get(work.state, AttemptState.ENDED),
        outcome=OUTCOMES.get(work.state, ""),
        reason=run.reason if work.state in OUTCOMES else {},
        network=work.network,
        fabric=work.fabric,
        shape=[{"machines": work.ask.machines, "gpus": work.ask.gpus}],
        leader_address=work.places[0][0].address,
        master_port=PORT,
        pass_no=0,
        placed_at=work.placed_at,
        opened_at=run.started_at,
        running_at=run.started_at,
        time_limit_at=_limit(work),
        ended_at=run.ended_at,
    )


def _limit(work: Work) -> datetime | None:
    hours, started = work.ask.limit_hours, work.run.started_at
    return started + timedelta(hours=hours) if hours and started else None


def _assignments(work: Work) -> Iterator[Assignment]:
    run, count = work.run, work.ask.machines
    for worker, (machine, gpus) in zip(work.workers, work.places, strict=True):
        ended = (
            {"ended_at": run.ended_at, "gone_at": run.ended_at, "exit": EXITS[work.state]}
            if work.ended
            else {}
        )
        yield Assignment(
            attempt=work.attempt,
            worker=worker,
            machine=machine,
            state=worker.state,
            phase=Phase.PREPARE if work.state == RunState.STARTING else Phase.START,
            revision=1,
            launch={
                "env": {"RANK": str(worker.rank), "WORLD_SIZE": str(count)},
                "gpu_uuids": [gpu.uuid for gpu in gpus],
                "memory_bytes": MEMORY_PER_GPU * work.ask.gpus,
                "gang": count > 1,
            },
            placed_at=work.placed_at,
            ready_at=work.placed_at,
            started_at=run.started_at,
            log_final=0 if work.ended else None,
            **ended,
        )


def _worker_events(assignment: Assignment) -> Iterator[WorkerEvent]:
    """Where it was placed, and what has become of it."""
    worker, attempt = assignment.worker, assignment.attempt
    placed = {
        "code": "placed",
        "machine": assignment.machine.name,
        "gpus": [int(uuid.rsplit("-", 1)[1]) for uuid in assignment.launch["gpu_uuids"]],
        "network": attempt.network,
    }
    told = (
        (WorkerState.PLACED, placed, assignment.placed_at),
        (worker.state, worker.reason, assignment.ended_at or assignment.started_at or assignment.placed_at),
    )
    for state, reason, at in told:
        yield WorkerEvent(
            worker=worker, assignment=assignment, at=at, attempt_no=attempt.number, state=state, reason=reason
        )


def _allocations(assignment: Assignment, gpus: Sequence[Gpu]) -> Iterator[Allocation]:
    base = {"assignment": assignment, "machine": assignment.machine, "created_at": assignment.placed_at}
    for gpu in gpus:
        yield Allocation(**base, gpu=gpu)
    cores, memory = CORES_PER_GPU * len(gpus), MEMORY_PER_GPU * len(gpus)
    yield Allocation(**base, cpu_cores=cores, memory_bytes=memory)
