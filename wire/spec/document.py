"""The run document: `metadata` and `spec`."""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field

from wire.names import MAX_LABELS, worker_names
from wire.spec.base import LabelKey, LabelValue, Part, RunName, Slug
from wire.spec.shapes import Shape
from wire.spec.task import TaskTemplate

MAX_GROUPS: Final = 64

Start = Literal["Gang", "Independent"]
OnFailure = Literal["RestartJob", "RestartTask", "FailJob"]


class Metadata(Part):
    """What the run is called."""

    name: RunName = Field(
        title="Name", description="The run's name in its workspace; its workers are `<name>-0`, `<name>-1`, …"
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        max_length=MAX_LABELS,
        title="Labels",
        description="Keys and values to find runs by, in Kubernetes syntax.",
    )


class WorkerGroup(Part):
    """One of several groups that start together."""

    name: Slug = Field(
        title="Name", description="The group's name; its workers are `<run>-<group>-0`, `<run>-<group>-1`, …"
    )
    task_template: TaskTemplate = Field(title="Workers", description="What the workers of this group run.")


class RunSpec(Part):
    """What is run and how."""

    start: Start = Field(
        default="Gang",
        title="Start",
        description="`Gang`: all workers are placed together or none, and nobody starts before all are "
        "ready. "
        "`Independent`: each on its own, as soon as there is room for it, on a machine without another worker of "
        "the run; their number is fixed on submission, where it is left open as the fewest that fit the cluster's "
        "machines.",
    )
    on_failure: OnFailure = Field(
        default="FailJob",
        title="When a worker fails",
        description="`FailJob`: the run fails. `RestartJob`: all workers are restarted. `RestartTask`: only "
        "the failed one, "
        "which a gang of several workers can't do.",
    )
    max_restarts: int = Field(
        default=3,
        ge=0,
        le=1000,
        title="Restarts",
        description="After so many restarts the run is Failed. The count starts anew after 10 minutes of "
        "running.",
    )
    stop_when_cut_off_seconds: int | None = Field(
        default=None,
        ge=60,
        le=86_400,
        title="Stop when cut off",
        description="A worker whose machine can't reach the console for so long is stopped there; a new "
        "attempt waits until "
        "that is sure. Without it a worker goes on.",
    )
    priority: int = Field(
        default=0,
        ge=-1000,
        le=1000,
        title="Priority",
        description="Higher goes first. An editor may ask for at most 100.",
    )
    preemptible: bool = Field(
        default=False,
        title="Preemptible",
        description="May be stopped and put back into the queue for a run of higher priority.",
    )
    barrier_timeout_seconds: int = Field(
        default=900,
        ge=60,
        le=7200,
        title="Barrier time-out",
        description="A gang goes back to the queue when a member is still not ready so long after the first "
        "one was.",
    )
    cluster: Slug | None = Field(
        default=None, title="Cluster", description="Where to run. Default: the workspace's cluster."
    )
    task_template: TaskTemplate | None = Field(
        default=None, title="Workers", description="One group of workers, named `<run>-<index>`."
    )
    worker_groups: tuple[WorkerGroup, ...] | None = Field(
        default=None,
        strict=False,
        min_length=1,
        max_length=MAX_GROUPS,
        title="Groups of workers",
        description="Instead of `task_template`: several groups that start as one gang, ranks running "
        "through them in order. "
        "Network and topology rules hold inside a group.",
    )


class Group(NamedTuple):
    """One group of workers, whichever way the document was written; `name` is "" for `task_template`."""

    name: str
    template: TaskTemplate


class RunDocument(Part):
    """A run as it is submitted. Made by `parse_document` and `validate_document` only."""

    metadata: Metadata = Field(title="Metadata", description="The run's name and labels.")
    spec: RunSpec = Field(title="Specification", description="What is run and how.")

    def groups(self) -> tuple[Group, ...]:
        """The groups in rank order; `task_template` is one group without a name."""
        if self.spec.worker_groups is not None:
            return tuple(Group(group.name, group.task_template) for group in self.spec.worker_groups)
        if self.spec.task_template is None:
            raise ValueError("not a validated document: it has neither task_template nor worker_groups")
        return (Group("", self.spec.task_template),)

    @property
    def time_limit_seconds(self) -> int | None:
        """The shortest limit of any group: it ends the run."""
        limits = [group.template.time_limit_seconds for group in self.groups()]
        return min((limit for limit in limits if limit), default=None)

    @property
    def patience_seconds(self) -> int:
        """The longest patience of any group."""
        return max(group.template.requested_resources.topology.patience_seconds for group in self.groups())

    @property
    def stop_grace_seconds(self) -> int:
        """The longest grace of any group."""
        return max(group.template.stop_grace_seconds for group in self.groups())

    def worker_names(self, shapes: Sequence[Shape]) -> tuple[str, ...]:
        """The workers' names in rank order; `shapes` holds one shape for each of `groups()`."""
        pairs = zip(self.groups(), shapes, strict=True)
        return worker_names(self.metadata.name, [(group.name, shape.machines) for group, shape in pairs])

    def as_json(self) -> dict[str, Any]:
        """JSON values of the fields that were given, no defaults."""
        return self.model_dump(mode="json", exclude_unset=True)

    def filled(self) -> dict[str, Any]:
        """JSON values with every default written out; fields that stay empty are left out. Valid itself."""
        return self._with_filled_templates().model_dump(mode="json", exclude_none=True)

    def _with_filled_templates(self) -> "RunDocument":
        spec = self.spec
        if spec.task_template is not None:
            changes: dict[str, object] = {"task_template": _filled(spec.task_template)}
        else:
            changes = {
                "worker_groups": tuple(
                    group.model_copy(update={"task_template": _filled(group.task_template)})
                    for group in spec.worker_groups or ()
                )
            }
        return self.model_copy(update={"spec": spec.model_copy(update=changes)})


def _filled(template: TaskTemplate) -> TaskTemplate:
    return template.model_copy(update={"requested_resources": template.requested_resources.filled()})
