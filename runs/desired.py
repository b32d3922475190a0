"""What an agent should be doing: everything that may still be there on its machine, with the phase wanted."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from machines.channel import starts_withheld
from machines.models import Machine
from runs.launch import secrets_of
from runs.models import Assignment
from runs.states import Phase
from tenancy.secrets import secret_values
from wire import agent_messages as wire
from wire.spec import TaskTemplate, validate_document

Secrets = Mapping[int, Mapping[str, str]]
"""Workspace id → secret → value."""


def desired_load(machine_id: int) -> tuple[int, wire.Desired]:
    """The machine's desired revision and state, with the secrets of what runs there and of nothing else.

    The revision is read first: what is added meanwhile comes under the old number, and again under the next.
    """
    machine = Machine.objects.get(id=machine_id)
    held = list(
        Assignment.objects.held()
        .filter(machine=machine)
        .select_related("attempt__run__parent", "worker")
        .order_by("placed_at", "id")
    )
    hold, secrets = starts_withheld(machine), _secrets(held)
    messages = tuple(_message(assignment, secrets, hold_start=hold) for assignment in held)
    return machine.desired_revision, wire.Desired(assignments=messages)


def _secrets(assignments: Iterable[Assignment]) -> Secrets:
    """What they need to be prepared. Read anew each time: the values are stored nowhere else."""
    named: dict[int, set[str]] = defaultdict(set)
    for assignment in assignments:
        if assignment.phase != Phase.STOP:
            names = {secret["name"] for secret in assignment.launch.get("secrets", ())}
            named[assignment.attempt.run.workspace_id] |= names
    return {workspace: secret_values(workspace, names) for workspace, names in named.items() if names}


def _message(assignment: Assignment, secrets: Secrets, *, hold_start: bool) -> wire.Assignment:
    phase = Phase(assignment.phase)
    if hold_start and phase == Phase.START and assignment.started_at is None:
        phase = Phase.PREPARE
    message = {**assignment.launch, "id": str(assignment.id), "phase": phase.value}
    if phase != Phase.STOP:
        template = _template(assignment)
        message["files"] = _files(template)
        message["secrets"] = secrets_of(template, secrets.get(assignment.attempt.run.workspace_id, {}))
    return wire.Assignment.model_validate(message)


def _template(assignment: Assignment) -> TaskTemplate:
    run = assignment.attempt.run
    document = validate_document((run.parent or run).document)
    return next(group.template for group in document.groups() if group.name == assignment.worker.group)


def _files(template: TaskTemplate) -> tuple[wire.FileMount, ...]:
    """The run's configs. They stand in its document once, not in every assignment or child."""
    return tuple(
        wire.FileMount(path=path, value=config.value, mode=config.mode)
        for config in template.configs
        for path in config.mounts
    )
