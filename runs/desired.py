"""What an agent should be doing: everything that may still be there on its machine, with the phase wanted."""

from machines.channel import starts_withheld
from machines.models import Machine
from runs.models import Assignment
from runs.states import Phase
from wire import agent_messages as wire
from wire.spec import validate_document


def desired_load(machine_id: int) -> tuple[int, wire.Desired]:
    """The machine's desired revision and state.

    The revision is read first: what is added meanwhile comes under the old number, and again under the next.
    """
    machine = Machine.objects.get(id=machine_id)
    held = (
        Assignment.objects.held()
        .filter(machine=machine)
        .select_related("attempt__run", "worker")
        .order_by("placed_at", "id")
    )
    hold = starts_withheld(machine)
    messages = tuple(_message(assignment, hold_start=hold) for assignment in held)
    return machine.desired_revision, wire.Desired(assignments=messages)


def _message(assignment: Assignment, *, hold_start: bool) -> wire.Assignment:
    phase = Phase(assignment.phase)
    if hold_start and phase == Phase.START and assignment.started_at is None:
        phase = Phase.PREPARE
    return wire.Assignment.model_validate(
        {
            **assignment.launch,
            "id": str(assignment.id),
            "phase": phase.value,
            "files": () if phase == Phase.STOP else _files(assignment),
        }
    )


def _files(assignment: Assignment) -> tuple[wire.FileMount, ...]:
    """The run's configs. They stand in its document once, not in every assignment."""
    document = validate_document(assignment.attempt.run.document)
    template = next(g.template for g in document.groups() if g.name == assignment.worker.group)
    return tuple(
        wire.FileMount(path=path, value=config.value, mode=config.mode)
        for config in template.configs
        for path in config.mounts
    )
