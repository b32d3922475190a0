"""What administrators say of the health of a GPU, a port or a whole machine, for a while.

`health` and `evidence` of a row are what counts, everywhere; `reported_…` are what its agent says. This module alone
makes the first of the second. A machine that is said to be suspect or faulty makes its GPUs so too, at least.
"""

import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, transaction
from django.db.models import F

from common.clock import database_now
from common.errors import FieldError, Invalid, NotFound
from machines.models import Gpu, HealthEvent, HealthOverride, Machine, RdmaPort
from machines.services import machine_changed, machines_lock
from machines.signals import cluster_changed
from machines.states import Health
from tenancy.access import Actor
from wire.names import shown

log = logging.getLogger(__name__)

LONGEST = timedelta(days=90)
"""Nobody remembers why after that; it can be said again."""
MACHINE = "machine"
"""The subject that is the machine itself."""
_GRAVITY = (Health.HEALTHY, Health.SUSPECT, Health.FAULTY)


@dataclass(frozen=True, slots=True)
class Judged:
    """What counts of something, with why."""

    health: str
    evidence: str


class Overrides:
    """Those of one machine. One that is over counts until the sweep takes it away: all its rows change together."""

    def __init__(self, overrides: Iterable[HealthOverride]) -> None:
        self._said = {each.subject: each for each in overrides}

    @classmethod
    def of(cls, machine: Machine) -> "Overrides":
        return cls(HealthOverride.objects.filter(machine=machine))

    def machine(self, reported: Judged) -> Judged:
        return self._own(MACHINE) or reported

    def port(self, device: str, port: int, reported: Judged) -> Judged:
        return self._own(port_subject(device, port)) or reported

    def gpu(self, uuid_: str, reported: Judged) -> Judged:
        """What is said of it itself, else the worse of what its agent says and what is said of the machine."""
        own, whole = self._own(gpu_subject(uuid_)), self._own(MACHINE)
        if own is not None or whole is None:
            return own or reported
        return max(reported, whole, key=lambda each: _GRAVITY.index(Health(each.health)))

    def _own(self, subject: str) -> Judged | None:
        said = self._said.get(subject)
        return Judged(said.health, override_words(said)) if said else None


def gpu_subject(uuid_: str) -> str:
    return f"gpu {uuid_}"


def port_subject(device: str, port: int) -> str:
    return f"port {device}:{port}"


def override_words(said: HealthOverride) -> str:
    return f"set by {said.set_by}: {said.reason}"[:300]


@transaction.atomic
def health_override(
    *, machine: Machine, subject: str, health: str, reason: str, lasts: timedelta, actor: Actor
) -> HealthOverride:
    """From now on `health` counts, until the time is over. Takes the place of what was said before.

    Raises Invalid for a health, a reason or a time that is none, NotFound for what the machine has not.
    """
    _require_sayable(health, reason, lasts)
    locked = _locked(machine)
    name = subject_name(locked, subject)
    was, now = _counts(locked, subject), database_now()
    before = HealthOverride.objects.filter(machine=machine, subject=subject).first()
    values = {"health": health, "reason": reason, "set_by": actor.name, "set_at": now, "until": now + lasts}
    said, _ = HealthOverride.objects.update_or_create(machine=machine, subject=subject, defaults=values)
    _apply(locked)
    _note(locked, subject, name, was, f"{reason} (until {said.until:%Y-%m-%d %H:%M} UTC)", actor.name)
    machine_changed(machine, actor, "health", _told(before), _told(said))
    return said


@transaction.atomic
def health_override_end(*, machine: Machine, subject: str, actor: Actor) -> None:
    """What its agent says counts again. Nothing happens where nothing was said."""
    locked = _locked(machine)
    said = HealthOverride.objects.filter(machine=machine, subject=subject).first()
    if said is None:
        return
    before = _told(said)
    _end(locked, said, actor.name, "what its agent says counts again")
    machine_changed(machine, actor, "health", before, None)


def _end(locked: Machine, said: HealthOverride, by: str, why: str) -> None:
    subject, name = said.subject, _name_known(locked, said)
    was = _counts(locked, subject)
    said.delete()
    _apply(locked)
    _note(locked, subject, name, was, why, by)


def health_overrides_expire() -> None:
    """Ends those whose time is over. Idempotent; one machine's trouble keeps none of the others waiting."""
    over = HealthOverride.objects.filter(until__lte=database_now(), machine__removed_at=None)
    for said in over.select_related("machine").order_by("until"):
        try:
            _expire(said.id, said.machine)
        except DatabaseError:
            log.exception("what was said of machine %s can't be ended now", said.machine_id)


@transaction.atomic
def _expire(said_id: int, machine: Machine) -> None:
    locked = machines_lock([machine.id]).get(machine.id)
    # It may have been prolonged since it was found, and the machine removed.
    said = HealthOverride.objects.filter(id=said_id, until__lte=database_now()).first()
    if locked is None or said is None:
        return
    _end(locked, said, said.set_by, "the time is over: what its agent says counts again")
    Machine.objects.filter(id=machine.id).update(version=F("version") + 1)
    cluster_changed.send(sender=Machine, cluster_id=machine.cluster_id)


def subject_name(machine: Machine, subject: str) -> str:
    """For people: "GPU 3", "mlx5_0:1", "this machine". Raises NotFound for what the machine has not."""
    kind, _, rest = subject.partition(" ")
    if subject == MACHINE:
        return "this machine"
    if kind == "gpu" and (gpu := machine.gpus.filter(uuid=rest).first()):
        return f"GPU {gpu.index}"
    device, _, port = rest.rpartition(":")
    if kind == "port" and port.isdecimal() and machine.rdma_ports.filter(device=device, port=int(port)):
        return rest
    raise NotFound(f"{machine.name} has no {shown(subject)}.")


def _name_known(machine: Machine, said: HealthOverride) -> str:
    """Of something that may have gone since."""
    try:
        return subject_name(machine, said.subject)
    except NotFound:
        return said.subject.partition(" ")[2]


def _require_sayable(health: str, reason: str, lasts: timedelta) -> None:
    if health not in Health.values:
        raise _refused("health", f"{shown(health)} is none of healthy, suspect and faulty.")
    if not reason.strip():
        raise _refused("reason", "Say why: others see it, and you may have forgotten by then.")
    if not timedelta(0) < lasts <= LONGEST:
        raise _refused("lasts", f"It can count for {LONGEST.days} days at most, and for longer than nothing.")


def _refused(path: str, message: str) -> Invalid:
    return Invalid("health_override", message, errors=(FieldError(path, "health_override", message),))


def _locked(machine: Machine) -> Machine:
    """As it is now: an agent that reports at this moment waits, or has been waited for."""
    locked = machines_lock([machine.id]).get(machine.id)
    if locked is None:
        raise NotFound(f"{machine.name} was removed.")
    return locked


def _told(said: HealthOverride | None) -> dict[str, Any] | None:
    if said is None:
        return None
    until = said.until.isoformat()
    return {"subject": said.subject, "health": said.health, "reason": said.reason, "until": until}


def _apply(machine: Machine) -> None:
    """Makes what counts of what is said and reported."""
    overrides = Overrides.of(machine)
    _write(machine, overrides.machine(reported_of(machine)))
    for gpu in machine.gpus.all():
        _write(gpu, overrides.gpu(gpu.uuid, reported_of(gpu)))
    for port in machine.rdma_ports.all():
        _write(port, overrides.port(port.device, port.port, reported_of(port)))


def _note(machine: Machine, subject: str, name: str, was: str, why: str, by: str) -> None:
    """In the history of its health, beside what its agent tells."""
    HealthEvent.objects.create(
        machine=machine,
        event_id=f"said-{uuid.uuid4().hex}",
        at=database_now(),
        subject=subject,
        name=name[:100],
        was=was,
        health=_counts(machine, subject),
        evidence=why[:300],
        by=by,
    )


def reported_of(row: Machine | Gpu | RdmaPort) -> Judged:
    return Judged(row.reported_health, row.reported_evidence)


def _write(row: Machine | Gpu | RdmaPort, judged: Judged) -> None:
    if (row.health, row.evidence) != (judged.health, judged.evidence):
        row.health, row.evidence = judged.health, judged.evidence
        row.save(update_fields=["health", "evidence"])


def _counts(machine: Machine, subject: str) -> str:
    kind, _, rest = subject.partition(" ")
    if kind == "gpu":
        rows: Any = machine.gpus.filter(uuid=rest)
    elif kind == "port":
        device, _, port = rest.rpartition(":")
        rows = machine.rdma_ports.filter(device=device, port=int(port))
    else:
        rows = Machine.objects.filter(id=machine.id)
    found: str | None = rows.values_list("health", flat=True).first()
    return found or Health.HEALTHY
