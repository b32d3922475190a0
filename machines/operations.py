"""What operators do with machines beside labels and cordon: drain, rename, sign out, remove. Moves: pools.py."""

from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models.functions import Coalesce
from django.utils import timezone

from common.clock import database_now
from common.errors import Conflict, FieldError, NotFound
from machines.mesh import mesh_leave
from machines.models import Machine, MachineCredential
from machines.services import machine_changed, machine_cordon, machines_lock, machines_wake, name_checked
from tenancy.access import Actor
from wire.names import check_machine_name

NAMES_SHOWN = 3
AT_ONCE = timedelta(0)


@transaction.atomic
def machine_drain(
    *, machine: Machine, actor: Actor, within: timedelta = AT_ONCE, reason: str = ""
) -> datetime:
    """Cordons it; what still runs there when `within` is over goes back to the queue. Returns that time.

    A machine that drains already gets the new time.
    """
    machine_cordon(machine=machine, actor=actor, reason=reason)
    now = database_now()
    until = now + within
    said = {"cordoned_by": actor.name, "cordon_reason": reason} if reason else {}
    Machine.objects.filter(id=machine.id).update(
        draining_at=Coalesce("draining_at", now), drain_until=until, **said
    )
    machine_changed(machine, actor, "drain", None, {"until": until.isoformat()})
    return until


@transaction.atomic
def machine_rename(*, machine: Machine, name: str, actor: Actor) -> None:
    """Gives it another name, while nothing runs there: workers are told the name when they are placed.

    Raises Invalid for what is no name, Conflict for one that is taken or while something runs.
    """
    name_checked("metadata.name", check_machine_name, name)
    if name == machine.name:
        return
    _require_empty(machine, "renamed")
    try:
        with transaction.atomic():
            Machine.objects.filter(id=machine.id).update(name=name)
    except IntegrityError as error:
        message = f"{machine.cluster.slug} has a machine named {name}."
        raise Conflict(
            "name_taken", message, errors=(FieldError("metadata.name", "name_taken", message),)
        ) from error
    machine_changed(machine, actor, "rename", {"name": machine.name}, {"name": name})


@transaction.atomic
def machine_sign_out(*, machine: Machine, actor: Actor) -> int:
    """Revokes its credentials (how many, is returned): the agent is refused from its next message on.

    What runs there goes on. The machine joins again under its name with a new join token.
    """
    usable = MachineCredential.objects.filter(machine=machine, revoked_at=None)
    revoked = usable.update(revoked_at=timezone.now())
    if revoked:
        machine_changed(machine, actor, "sign_out", None, {"credentials": revoked})
        transaction.on_commit(lambda: machines_wake([machine.id]))
    return revoked


@transaction.atomic
def machine_remove(*, machine: Machine, actor: Actor) -> None:
    """Takes it out of the cluster for good. Raises Conflict while something may still run there."""
    _require_empty(machine, "removed")
    machine_sign_out(machine=machine, actor=actor)
    machine.labels.all().delete()
    machine.rdma_ports.all().delete()
    drives = list(machine.drives.values_list("name", flat=True))
    machine.drives.all().delete()
    mesh_leave(machine)
    machine.gpus.update(present=False)  # what they were held by stays told
    before = {"pool": machine.pool and machine.pool.slug, **({"drives": drives} if drives else {})}
    machine_changed(machine, actor, "remove", before, None)
    Machine.objects.filter(id=machine.id).update(removed_at=timezone.now())


def _require_empty(machine: Machine, what: str) -> None:
    """The lock keeps placements away until the transaction ends. Raises NotFound when it was removed meanwhile."""
    if not machines_lock([machine.id]):
        raise NotFound(f"{machine.name} was removed.")
    # Assignments belong to the app above; their relation to machines is all that is read of them.
    held = machine.assignments.filter(gone_at=None).order_by("worker__name")
    names = list(held.values_list("worker__name", flat=True)[: NAMES_SHOWN + 1])
    if names:
        more = " and others" if len(names) > NAMES_SHOWN else ""
        running = ", ".join(names[:NAMES_SHOWN]) + more
        raise Conflict(
            "in_use",
            f"{machine.name} can't be {what} while something may run there: {running}. Drain it first.",
        )
