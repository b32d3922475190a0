"""Independent runs in tests: their workers placed by real passes, each driven by itself."""

from dataclasses import dataclass
from typing import Any

from runs.gang.apply import run_advance
from runs.models import Run, Worker
from runs.presentation import run_reason, runs_for_display
from runs.reasons import word
from runs.scheduling.passes import cluster_pass
from tests import factories
from tests.support.gangs import Gang


@dataclass(frozen=True)
class Family:
    """An independent run, and each of its workers as a gang of one."""

    run: Run

    @property
    def fresh(self) -> Run:
        return Run.objects.get(id=self.run.id)

    @property
    def workers(self) -> list[Worker]:
        found = Worker.objects.filter(run__parent=self.run, active=True)
        return list(found.select_related("run").order_by("rank"))

    def alone(self, rank: int) -> Gang:
        return Gang(self.workers[rank].run)

    def states(self) -> list[str]:
        """Of the workers' own runs."""
        return [worker.run.state for worker in self.workers]

    def machines(self) -> list[str | None]:
        """Where the newest attempt of each worker is or was."""
        found = [worker.assignments.order_by("-attempt__number").first() for worker in self.workers]
        return [each.machine.name if each else None for each in found]

    def start(self, *ranks: int) -> "Family":
        for rank in ranks:
            self.alone(rank).start()
        run_advance(self.run.id)
        return self

    def advance(self) -> tuple[str, str]:
        """Lets the deciding place look at the workers and at the run; what the run shows then."""
        for _ in range(2):  # what the run orders, its workers carry out
            for worker in self.workers:
                run_advance(worker.run_id)
            run_advance(self.run.id)
        return self.shown()

    def pass_over(self) -> tuple[str, str]:
        """One more pass over the cluster, and what the run shows then."""
        cluster_pass(self.run.cluster_id)
        return self.advance()

    def displayed(self) -> Run:
        return runs_for_display(Run.objects.filter(id=self.run.id)).get()

    def shown(self) -> tuple[str, str]:
        run = self.displayed()
        return run.state, run_reason(run)

    def history(self) -> list[tuple[str, str]]:
        return [(event.state, word(event.reason)) for event in self.run.events.all()]


def independent(
    house: factories.House,
    name: str = "sweep",
    *,
    workers: int = 3,
    gpus: int = 8,
    passed: bool = True,
    **spec: Any,
) -> Family:
    """A run of so many workers with `gpus` GPUs each, submitted and seen by a pass."""
    family = Family(
        factories.run_pending(house, name, document=sweep(name, workers=workers, gpus=gpus, **spec))
    )
    if passed:
        family.pass_over()
    return family


def sweep(name: str = "sweep", *, workers: int = 3, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    document = factories.document_make(
        name,
        gpus=workers * gpus,
        machines=workers,
        **{"start": "Independent", "on_failure": "RestartTask", **spec},
    )
    document["spec"]["task_template"]["configs"] = [{"mounts": ["/app/sweep.py"], "value": "print(1)"}]
    return document
