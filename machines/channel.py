"""The database side of the agents' channel: who an agent is, whether its message counts, what it has applied."""

import time
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from common.secrets import secret_digest
from machines.inventory import inventory_store
from machines.models import Machine, MachineCredential, ReplacedAgent
from machines.services import machines_revise
from machines.signals import cluster_changed
from wire.agent_messages import Observed, SyncRequest

TWO_AGENTS_HOLD = timedelta(seconds=60)
"""How long a machine gets no work and no starts after two living agents were last seen on its credential."""

REPLACED_KEPT = timedelta(hours=1)
"""How long a replaced agent is remembered: one that lives speaks twice a minute. The last one is never forgotten."""

RIVALS = (
    "Two agents use the credential of this machine, so nothing is started on it. Was its disk copied to another "
    "machine? There, stop the agent, delete its state directory and join with a new token from Add a machine."
)

_inventories: dict[int, tuple[str, bytes]] = {}
"""Of the observation that this process last stored of a machine: its digest, and a mark of its inventory. As long
as the row still has that digest, no other process has stored a newer one."""


@dataclass(frozen=True, slots=True)
class Received:
    """What became of a sync request."""

    revision: int
    stored_digest: str
    fresh: bool
    """False: an older request that arrived late; nothing of it was taken over."""
    quarantined: bool
    rival: bool = False
    """It came from an agent that another one has replaced, and that lives on all the same."""


def credential_machine(value: str) -> int | None:
    """The machine whose (unrevoked) credential this is."""
    return (
        MachineCredential.objects.filter(digest=secret_digest(value), revoked_at=None)
        .values_list("machine_id", flat=True)
        .first()
    )


def absence_counts(machine_id: int, request: SyncRequest) -> bool | None:
    """Whether an assignment that the request does not report is lost; None when nothing in it counts.

    An agent that is ahead of the database may have forgotten what the database has only now gone back to.
    """
    machine = Machine.objects.get(id=machine_id)
    if _overtaken(machine, request):
        return None
    return request.applied_revision <= machine.desired_revision and machine.quarantined_at is None


def _overtaken(machine: Machine, request: SyncRequest) -> bool:
    """Whether a newer request, or a newer agent, was heard before."""
    if request.instance == machine.instance:
        return request.sequence <= machine.sequence
    return ReplacedAgent.objects.filter(machine=machine, instance=request.instance).exists()


@transaction.atomic
def sync_receive(machine_id: int, request: SyncRequest) -> Received:
    """Takes over the machine's part of a sync request.

    The assignments' part must have been taken over before: only then may the digest be stored, or a crash in
    between would lose a report for good.
    """
    machine = Machine.objects.select_for_update().get(id=machine_id)
    if _overtaken(machine, request):
        rival = request.instance != machine.instance
        if rival:
            _contest(machine)
        return Received(machine.desired_revision, machine.observed_digest, False, False, rival)
    if request.instance != machine.instance:
        _replaced_note(machine)
    digest = machine.observed_digest
    if request.observed is not None and request.digest != digest:
        _inventory_follow(machine, request, request.observed)
        digest = request.digest
    news = {
        **_instance_fields(request),
        **_applied_fields(machine, request),
        "observed_digest": digest,
    }
    Machine.objects.filter(id=machine_id).update(**news)
    if machine.last_seen_at is None or machine.unreachable_at is not None:
        machine_back(machine)
    quarantined = "quarantined_at" in news or machine.quarantined_at is not None
    return Received(machine.desired_revision, digest, True, quarantined)


def _inventory_follow(machine: Machine, request: SyncRequest, observed: Observed) -> None:
    """Most observations differ in their assignments only: the inventory's dozen statements are spared then."""
    mark = sha256(
        f"{observed.inventory.model_dump_json()}{observed.busy_ports}{observed.mesh}".encode()
    ).digest()
    if _inventories.get(machine.id) != (machine.observed_digest, mark):
        inventory_store(machine=machine, observed=observed, skew=timedelta(seconds=_skew(request)))
    transaction.on_commit(lambda: _inventories.update({machine.id: (request.digest, mark)}))


def _instance_fields(request: SyncRequest) -> dict[str, Any]:
    return {
        "instance": request.instance,
        "sequence": request.sequence,
        "boot_id": request.boot_id,
        "agent_version": request.agent_version,
        "address": request.address,
        "runtime": request.runtime,
        "simulated": request.simulated,
        "clock_skew": round(_skew(request)),
    }


def _replaced_note(machine: Machine) -> None:
    """Another agent speaks for the machine now. Of a restarted one nothing is heard again; of others it is, however
    many take turns."""
    if not machine.instance:
        return
    now = timezone.now()
    ReplacedAgent.objects.filter(machine=machine, at__lt=now - REPLACED_KEPT).delete()
    ReplacedAgent.objects.create(machine=machine, instance=machine.instance, at=now)


def _skew(request: SyncRequest) -> float:
    """Seconds that the agent's clock is behind; the message's way counts too."""
    return time.time() - request.sent_at


def _applied_fields(machine: Machine, request: SyncRequest) -> dict[str, Any]:
    """An agent that is ahead of the database is quarantined: the database has gone back in time."""
    if request.applied_revision <= machine.desired_revision:
        return {"applied_revision": request.applied_revision}
    if machine.quarantined_at is not None:
        return {}
    return {"quarantined_at": timezone.now(), "version": F("version") + 1}


def machine_back(machine: Machine) -> None:
    """It was heard again (or for the first time)."""
    Machine.objects.filter(id=machine.id).update(
        unreachable_at=None, last_seen_at=timezone.now(), version=F("version") + 1
    )
    cluster_changed.send(sender=Machine, cluster_id=machine.cluster_id)


def _contest(machine: Machine) -> None:
    """Two agents were heard. From the first such message on nothing is placed there; the others make it last."""
    now = timezone.now()
    begun = Machine.objects.filter(id=machine.id, two_agents_at=None)
    if begun.update(two_agents_at=now, version=F("version") + 1):
        cluster_changed.send(sender=Machine, cluster_id=machine.cluster_id)
    else:
        Machine.objects.filter(id=machine.id).update(two_agents_at=now)


def two_agents_forget() -> None:
    """Machines of which a single agent was heard for a while get what was withheld, and take new work again."""
    over = Machine.objects.filter(two_agents_at__lte=timezone.now() - TWO_AGENTS_HOLD)
    for machine_id, cluster_id in over.values_list("id", "cluster_id"):
        with transaction.atomic():
            # Not when the second one has been heard again meanwhile.
            if over.filter(id=machine_id).update(two_agents_at=None):
                machines_revise([machine_id], placement_changed=True)
                cluster_changed.send(sender=Machine, cluster_id=cluster_id)


def starts_withheld(machine: Machine) -> bool:
    """Whether two agents fight over this machine: then nothing is started on it."""
    return machine.two_agents_at is not None
