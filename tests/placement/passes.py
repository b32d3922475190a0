"""Passes over drawn clusters: the jobs that wait, the runs that hold machines, and what is decided, in words."""

from typing import Any

from placement import GroupRequest, Request
from placement.holdings import Hold, Holding
from placement.policy import Cycle, Job, Patient, Placed, Running
from tests.placement.asking import snapshot_of

NOW = 1_000_000.0
HOUR = 3600.0

TWO_FREE_TWO_BUSY = """
    gpu-01  H100 ########  pool=h100
    gpu-02  H100 ########  pool=h100
    gpu-03  H100 ........  pool=h100
    gpu-04  H100 ........  pool=h100
"""


def job(key: int, gpus: int, machines: int | None = None, *, workspace: int = 1, **fields: Any) -> Job:
    group = GroupRequest(gpus=gpus, machines=machines or gpus // 8 or 1)
    defaults: dict[str, Any] = {"priority": 0, "queued_at": NOW - 1000 + key}
    return Job(key=key, workspace=workspace, request=Request((group,)), **{**defaults, **fields})


def running(
    key: int, *machines: str, ends: float | None = None, workspace: int = 1, **fields: Any
) -> Running:
    holds = tuple(Hold(name, tuple(range(8)), 96_000, 0) for name in machines)
    defaults: dict[str, Any] = {"priority": 0, "started_at": NOW - 2 * HOUR}
    return Running(Holding(key, holds, ends), workspace, **{**defaults, **fields})


def cycle(drawing: str, jobs: list[Job], runs: list[Running] | None = None, **given: Any) -> Cycle:
    return Cycle(
        snapshot_of(drawing),
        jobs,
        runs or [],
        given.get("shares", {}),
        given.get("usage", {}),
        given.get("now", NOW),
    )


def passed(made: Cycle) -> dict[int, Any]:
    """Every job's decision, in the order in which they were judged; what can be placed is."""
    said = {}
    for each in made.order():
        said[each.key] = made.judge(each)
        if isinstance(said[each.key], Placed):
            made.took(each, said[each.key].placement)
    return said


def told(said: dict[int, Any]) -> dict[int, str]:
    """ "placed on gpu-03", "patient", or the kind of refusal."""

    def one(decision: Any) -> str:
        match decision:
            case Placed():
                return "placed on " + " ".join(rank.machine_name for rank in decision.placement.ranks)
            case Patient():
                return "patient"
        return str(decision.kind)

    return {key: one(decision) for key, decision in said.items()}
