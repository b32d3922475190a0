"""What an agent should be doing: everything that may still be there on its machine, with the phase wanted."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from machines.channel import starts_withheld
from machines.mesh import mesh_order
from machines.models import Machine
from runs.exports import exports_of
from runs.launch import secrets_of
from runs.meeting import meeting_of, members_load
from runs.models import Assignment
from runs.states import Phase
from tenancy.registries import credential_logins
from tenancy.secrets import secret_values
from wire import assignments as wire
from wire.spec import TaskTemplate, stored_document

Templates = Mapping[UUID, TaskTemplate]
"""Assignment id → its worker's group, of those that are not to stop."""
Secrets = Mapping[int, Mapping[str, str]]
"""Workspace id → secret → value."""
Logins = Mapping[int, Mapping[str, wire.RegistryLogin]]
"""Workspace id → registry credential → what it signs in with."""


def desired_load(machine_id: int) -> tuple[int, wire.Desired]:
    """The machine's desired revision and state, with the secrets of what runs there and of nothing else.

    The revision is read first: what is added meanwhile comes under the old number, and again under the next.
    """
    machine = Machine.objects.select_related("cluster").get(id=machine_id)
    held = list(
        Assignment.objects.held()
        .filter(machine=machine)
        .select_related("attempt__run__parent", "attempt__run__workspace", "attempt__run__cluster", "worker")
        .order_by("placed_at", "id")
    )
    hold, secrets, gangs = starts_withheld(machine), _secrets(held), members_load(held)
    templates = {each.id: _template(each) for each in held if each.phase != Phase.STOP}
    logins = _logins(held, templates)
    messages = []
    for assignment in held:
        message = _message(assignment, hold_start=hold)
        message |= meeting_of(assignment, gangs.get(assignment.attempt_id, []))
        if assignment.id in templates:
            message |= _contents(assignment, templates[assignment.id], secrets, logins)
        messages.append(wire.Assignment.model_validate(message))
    mesh = mesh_order(machine, mesh_beside(held))
    return machine.desired_revision, wire.Desired(
        assignments=tuple(messages), mesh=mesh, exports=exports_of(machine)
    )


def mesh_beside(held: Iterable[Assignment]) -> Iterable[Machine]:
    """The machines with which this one shares a gang on the mesh, by name."""
    attempts = {assignment.attempt_id for assignment in held if assignment.launch.get("on_mesh")}
    if not attempts:
        return ()
    return Machine.objects.filter(assignments__attempt__in=attempts).order_by("name").distinct()


def _secrets(assignments: Iterable[Assignment]) -> Secrets:
    """What they need to be prepared. Read anew each time: the values are stored nowhere else."""
    named: dict[int, set[str]] = defaultdict(set)
    for assignment in assignments:
        if assignment.phase != Phase.STOP:
            names = {secret["name"] for secret in assignment.launch.get("secrets", ())}
            named[assignment.attempt.run.workspace_id] |= names
    return {workspace: secret_values(workspace, names) for workspace, names in named.items() if names}


def _logins(assignments: Iterable[Assignment], templates: Templates) -> Logins:
    """As `_secrets`."""
    named: dict[int, set[str]] = defaultdict(set)
    for assignment in assignments:
        template = templates.get(assignment.id)
        if template is not None and template.registry_credential:
            named[assignment.attempt.run.workspace_id].add(template.registry_credential)
    return {workspace: credential_logins(workspace, names) for workspace, names in named.items()}


def _message(assignment: Assignment, *, hold_start: bool) -> dict[str, Any]:
    phase = Phase(assignment.phase)
    if hold_start and phase in {Phase.CHECK, Phase.START} and assignment.started_at is None:
        phase = Phase.PREPARE
    return {**assignment.launch, "id": str(assignment.id), "phase": phase.value}


def _contents(
    assignment: Assignment, template: TaskTemplate, secrets: Secrets, logins: Logins
) -> dict[str, Any]:
    """What only a worker that is not to stop gets. A credential that has been removed since comes without its
    password: a worker that isn't prepared yet waits, and says so."""
    workspace, credential = assignment.attempt.run.workspace_id, template.registry_credential
    return {
        "files": _files(template),
        "secrets": secrets_of(template, secrets.get(workspace, {})),
        "registry": logins.get(workspace, {}).get(credential, wire.RegistryLogin(name=credential))
        if credential
        else None,
    }


def _template(assignment: Assignment) -> TaskTemplate:
    run = assignment.attempt.run
    document = stored_document((run.parent or run).document)
    return next(group.template for group in document.groups() if group.name == assignment.worker.group)


def _files(template: TaskTemplate) -> tuple[wire.FileMount, ...]:
    """The run's configs. They stand in its document once, not in every assignment or child."""
    return tuple(
        wire.FileMount(path=path, value=config.value, mode=config.mode)
        for config in template.configs
        for path in config.mounts
    )
