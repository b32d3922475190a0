"""Drawn clusters for the tests of explanations: who holds what, who waits, and what the last pass says."""

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from machines.models import Machine, WorkspacePool
from runs.explaining.moments import moment_words
from runs.explanations import explanation_of
from runs.models import Run, RunAttempt
from runs.presentation import runs_for_display
from runs.scheduling.passes import cluster_pass
from tenancy.models import Workspace
from tests import factories

RACK = "one rack on one InfiniBand fabric"


def holding(
    house: factories.House,
    name: str,
    *machines: Machine,
    gpus: int = 8,
    limit_in: timedelta | None = None,
    workspace: Workspace | None = None,
) -> Run:
    """A run that runs on those machines; `limit_in`: when its time limit ends it."""
    document = factories.document_make(name, gpus=gpus * len(machines), machines=len(machines))
    if limit_in is not None:
        document["spec"]["task_template"]["time_limit_seconds"] = int(limit_in.total_seconds())
    run = factories.run_pending(house, name, document=document)
    attempt = factories.run_place(house, run, list(machines), gpus=gpus)
    factories.run_start(attempt)
    if limit_in is not None:
        RunAttempt.objects.filter(id=attempt.id).update(time_limit_at=timezone.now() + limit_in)
    if workspace is not None:
        Run.objects.filter(id=run.id).update(workspace=workspace)
    return run


def audio_make(house: factories.House) -> Workspace:
    """Another workspace of the same organization, on the same pool."""
    audio = Workspace.objects.create(organization=house.organization, slug="audio", name="Audio")
    WorkspacePool.objects.create(workspace=audio, pool=house.pool)
    return audio


def waiting(house: factories.House, name: str = "ddp-resnet50", **options: Any) -> Run:
    return factories.run_pending(house, name, document=factories.document_make(name, **options))


def cordoned(name: str, *, days: int = 2) -> None:
    at = timezone.now() - timedelta(days=days, minutes=5)
    Machine.objects.filter(name=name).update(
        cordoned_at=at, cordoned_by="ops", cordon_reason="changing a cable"
    )


def limit_of(run: Run) -> str:
    """When its time limit ends it, in words."""
    return in_words(RunAttempt.objects.get(run=run).time_limit_at)


def in_words(at: datetime | None) -> str:
    assert at is not None
    return moment_words(at, timezone.now())


def fresh(run: Run) -> Run:
    return runs_for_display(Run.objects.filter(id=run.id)).get()


def explained(run: Run, at: datetime | None = None, *, after_pass: bool = True) -> dict[str, Any]:
    """The run's explanation, by default after one more pass."""
    if after_pass:
        cluster_pass(run.cluster_id)
    return explanation_of(fresh(run), at=at)


def machines_told(told: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(group, machines, text) of each row."""
    return [(row["group"], ", ".join(row["machines"]), row["text"]) for row in told["machines"]]


def changes_told(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(change["text"], change["result"]) for change in told["changes"]]


def causes_told(told: dict[str, Any]) -> list[tuple[str, bool, str]]:
    return [(cause["kind"], cause["met"], cause["text"]) for cause in told["causes"]]
