"""What would become of a run that is not submitted: the same checks and the same engine, nothing stored."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from common.clock import database_now
from placement import Placement, Rank, words
from placement.phrases import and_list, plural
from placement.policy import Cycle, Job, Patient, Placed, Refused
from runs.explaining.view import View, view_waiting, worded
from runs.independent.documents import child_document
from runs.lemons import lemon_tiers
from runs.models import Run
from runs.scheduling.planning import job_limit, plan_alone
from runs.scheduling.records import Recalled
from runs.scheduling.request import Lemons, pools_allowed, request_base
from runs.scheduling.snapshot import cluster_snapshot
from runs.services import Submission, conflict_of, name_taken, submission_read
from tenancy.access import Actor
from tenancy.models import Workspace
from wire.spec import RunDocument, Shape, validate_document

NAMES_SHOWN = 8
"""Machines that the sentence names; the rest are counted."""


def run_foresee(
    *, workspace: Workspace, actor: Actor, text: str | bytes, but: Run | None = None, patient: bool = False
) -> dict[str, Any]:
    """`{"placement": …}` where it could start now if it were the first in the queue, else `{"explanation": …}`.

    Quotas count; runs that wait do not. `but`: the run whose document this would replace. With `patient` also
    `{"placement", "better": {"network", "seconds"}}` where it would wait for a better network first. Raises what
    `run_submit` raises.
    """
    submission = submission_read(workspace=workspace, actor=actor, text=text)
    document, cluster = submission.document, submission.cluster
    if name_taken(workspace, submission, but=but):
        raise conflict_of(workspace, submission, but=but)
    now, loaded = database_now(), cluster_snapshot(cluster)
    avoid = Lemons(loaded.names, lemon_tiers(cluster.id, now)).named
    jobs = [
        replace(job, request=replace(job.request, avoid=avoid)) for job in _jobs(workspace, submission, now)
    ]
    cycle = plan_alone(cluster, jobs, loaded.names, now).cycle(loaded.snapshot, {}, now)
    if patient and (waits := _patient(cycle, jobs, document)):
        return {"placement": _placement(waits.found, document), "better": _better(waits, document)}
    placed, refused = _judge(cycle, jobs)
    if refused and not placed:
        decision = refused[0]
        recalled = Recalled(loaded.snapshot, decision.request, decision.refusal, cluster.pass_no, now, ())
        return {"explanation": _explanation(workspace, submission, decision, recalled)}
    if document.spec.start == "Independent":
        return {"placement": _placement_apart(submission, placed)}
    return {"placement": _placement(placed[0], document)}


def _patient(cycle: Cycle, jobs: Sequence[Job], document: RunDocument) -> Patient | None:
    """What it would wait for although it could start."""
    if len(jobs) != 1:
        return None
    decision = cycle.judge(replace(jobs[0], patience_seconds=document.patience_seconds))
    return decision if isinstance(decision, Patient) else None


def _better(waits: Patient, document: RunDocument) -> dict[str, Any]:
    now, better = waits.found.verdict, waits.better.verdict
    network = "a tighter one" if now == better else words.verdict_words(better.code)
    return {"network": network, "seconds": document.patience_seconds}


def _judge(cycle: Cycle, jobs: Sequence[Job]) -> tuple[dict[int, Placement], list[Refused]]:
    """Of each job that could start its placement, by key; of the others why not."""
    placed: dict[int, Placement] = {}
    refused: list[Refused] = []
    for job in jobs:
        decision = cycle.judge(job)
        if isinstance(decision, Placed):
            cycle.took(job, decision.placement)
            placed[job.key] = decision.placement
        elif isinstance(decision, Refused):
            refused.append(decision)
    return placed, refused


def _jobs(workspace: Workspace, submission: Submission, now: datetime) -> list[Job]:
    """One, or one for each worker that starts on its own."""
    if submission.document.spec.start != "Independent":
        return [_job(workspace, submission, submission.document, now)]
    documents = [each for each, shape in _apart(submission) for _ in range(shape.machines)]
    return [
        replace(_job(workspace, submission, document, now), key=number, family=0)
        for number, document in enumerate(documents)
    ]


def _apart(submission: Submission) -> list[tuple[RunDocument, Shape]]:
    """Of each group the document of one worker, and the group's shape."""
    return [
        (validate_document(child_document(submission.document, number, shape)), shape)
        for number, shape in enumerate(submission.shapes)
    ]


def _job(workspace: Workspace, submission: Submission, document: RunDocument, now: datetime) -> Job:
    """As a pass would see it, alone in the queue and content with the network there is."""
    pools = pools_allowed(workspace.id, submission.cluster.id)
    return Job(
        key=0,
        workspace=workspace.id,
        priority=document.spec.priority,
        queued_at=now.timestamp(),
        request=replace(request_base(document), allowed_pools=pools),
        preemptible=document.spec.preemptible,
        limit_seconds=job_limit(document),
    )


def _placement(placement: Placement, document: RunDocument) -> dict[str, Any]:
    shapes = [Shape(group.shape.machines, group.shape.gpus) for group in placement.groups]
    names = document.worker_names(shapes)
    network = words.verdict_words(placement.verdict.code)
    machines = [rank.machine_name for rank in placement.ranks]
    return {
        "text": f"{_named(machines)}, {network}",
        "network": {"code": placement.verdict.code, "text": network},
        "shape": _shapes(shapes),
        "workers": [
            _worker(name, rank.rank, rank) for name, rank in zip(names, placement.ranks, strict=True)
        ],
    }


def _placement_apart(submission: Submission, placed: Mapping[int, Placement]) -> dict[str, Any]:
    """Workers that could start now, each on its own, by their numbers; the others would wait."""
    names = submission.document.worker_names(submission.shapes)
    ranks = {number: placement.ranks[0] for number, placement in placed.items()}
    waits = len(names) - len(ranks)
    rest = f"; {waits} of {plural(len(names), 'worker')} would wait" if waits else ""
    network = next(iter(placed.values())).verdict.code
    return {
        "text": f"{_named([rank.machine_name for rank in ranks.values()])}, each on its own{rest}",
        "network": {"code": network, "text": words.verdict_words(network)},
        "shape": _shapes(submission.shapes),
        "workers": [_worker(names[number], number, rank) for number, rank in ranks.items()],
    }


def _shapes(shapes: Sequence[Shape]) -> list[dict[str, int]]:
    return [{"machines": shape.machines, "gpus": shape.gpus_per_machine} for shape in shapes]


def _worker(name: str, number: int, rank: Rank) -> dict[str, Any]:
    return {"name": name, "rank": number, "machine": rank.machine_name, "gpus": list(rank.gpus)}


def _named(machines: Sequence[str]) -> str:
    """`gpu-01 and gpu-02`; of many machines the first ones, and how many more."""
    more = len(machines) - NAMES_SHOWN
    return and_list([*machines[:NAMES_SHOWN], *([f"{more} more"] if more > 0 else [])])


def _explanation(
    workspace: Workspace, submission: Submission, decision: Refused, recalled: Recalled
) -> dict[str, Any]:
    """What the run's own explanation would say, less what only a run in the queue has."""
    document, apart = submission.document, None
    if document.spec.start == "Independent":
        document, shape = _apart(submission)[0]
        apart = shape.machines
    run = Run(
        workspace=workspace,
        cluster=submission.cluster,
        name=document.metadata.name,
        priority=document.spec.priority,
        document=document.filled(),
        wait_kind=decision.kind,
    )
    told = decision.refusal.as_data()
    return {
        "run": run.name,
        "state": run.state,
        "kind": decision.kind,
        "cause": told["cause"],
        "headline": words.headline(told),
        **worded(view_waiting(View(run, recalled, recalled.at, apart=apart))),
    }
