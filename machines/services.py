"""Writes of machines: joining, labels, cordon, and the desired revision that wakes an agent."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from common.errors import Conflict, FieldError, Forbidden, Invalid, NotFound
from common.nudge import attempt, client, publish
from common.secrets import NewSecret, secret_digest, secret_make
from machines.models import JoinToken, Machine, MachineCredential, MachineLabel, Pool
from machines.signals import cluster_changed
from machines.states import TOPOLOGY_LABELS
from tenancy.access import Actor
from tenancy.services import audit_record
from wire.names import (
    MAX_LABELS,
    BadName,
    check_label_key,
    check_label_value,
    check_machine_name,
    shown,
)

JOIN_TOKEN_LIFE = timedelta(hours=1)
WAKE_CHANNEL = "astraeus:wake"
"""Messages are machine ids: their desired state has moved."""

SEEN_KEPT_SECONDS = 3600
RESERVED_DOMAIN = "astraeus.io"
"""Of label keys: beside the topology's, those below it are the product's own."""


@dataclass(frozen=True, slots=True)
class Joined:
    machine: Machine
    credential: NewSecret


def join_token_create(*, pool: Pool, by: str) -> NewSecret:
    secret = secret_make("asj")
    JoinToken.objects.create(
        pool=pool,
        prefix=secret.prefix,
        digest=secret.digest,
        created_by=by,
        expires_at=timezone.now() + JOIN_TOKEN_LIFE,
    )
    return secret


@transaction.atomic
def join_token_issue(*, pool: Pool, actor: Actor) -> tuple[JoinToken, NewSecret]:
    """A join token that `actor` asked for; its value is in the answer and nowhere else."""
    pool_lock(pool.id)
    secret = join_token_create(pool=pool, by=actor.name)
    token = JoinToken.objects.get(digest=secret.digest)
    _join_audit(token, actor, "create")
    return token, secret


@transaction.atomic
def join_token_revoke(*, token: JoinToken, actor: Actor) -> None:
    """Nobody can join with it any more. Idempotent; one that was used stays used."""
    revoked = JoinToken.objects.filter(id=token.id, used_at=None, expires_at__gt=timezone.now())
    if revoked.update(expires_at=timezone.now()):
        _join_audit(token, actor, "revoke")


def _join_audit(token: JoinToken, actor: Actor, action: str) -> None:
    audit_record(
        actor=actor,
        organization=token.pool.cluster.organization,
        action=f"join_token.{action}",
        target=f"{token.prefix}… for {token.pool.slug}",
    )


@transaction.atomic
def machine_join(*, token: str, name: str, runtime: str, agent_version: str) -> Joined:
    """Exchanges a join token for a machine and its credential.

    Raises Forbidden for a token that is unknown, used or expired, Conflict for a name that is taken.
    """
    name_checked("name", check_machine_name, name)
    joining = (
        JoinToken.objects.select_for_update(of=("self",))
        .select_related("pool__cluster")
        .filter(digest=secret_digest(token))
        .first()
    )
    _require_usable(joining)
    assert joining is not None  # noqa: S101 - for mypy: just required
    machine = _signed_out(joining.pool, name) or _machine_create(joining.pool, name, runtime, agent_version)
    JoinToken.objects.filter(id=joining.id).update(used_at=timezone.now(), machine=machine)
    return Joined(machine, credential_create(machine=machine))


def _signed_out(pool: Pool, name: str) -> Machine | None:
    """The pool's machine of this name whose credentials were revoked: it joins again as what it was."""
    machines = Machine.objects.select_for_update(of=("self",)).select_related("cluster")
    machine = machines.filter(pool=pool, name=name).first()
    if machine is None:
        return None
    revoked = list(machine.credentials.values_list("revoked_at", flat=True))
    return machine if revoked and None not in revoked else None


def _machine_create(pool: Pool, name: str, runtime: str, agent_version: str) -> Machine:
    cluster = pool.cluster
    try:
        with transaction.atomic():
            return Machine.objects.create(
                cluster=cluster, pool=pool, name=name, runtime=runtime, agent_version=agent_version
            )
    except IntegrityError as error:
        raise Conflict(
            "name_taken",
            f"{cluster.slug} has a machine named {name}. Join with another --name, or remove it first.",
        ) from error


def _require_usable(joining: JoinToken | None) -> None:
    if joining is None:
        raise Forbidden("This join token is not valid. Take a new one from Machines → Add a machine.")
    if joining.used_at:
        raise Forbidden("This join token has been used. Each machine needs one of its own.")
    if joining.expires_at <= timezone.now():
        raise Forbidden("This join token has expired. Take a new one from Machines → Add a machine.")


def credential_create(*, machine: Machine) -> NewSecret:
    secret = secret_make("asm")
    MachineCredential.objects.create(machine=machine, prefix=secret.prefix, digest=secret.digest)
    return secret


def machines_lock(machine_ids: Iterable[int]) -> dict[int, Machine]:
    """The machines by id, locked in id order until the transaction ends."""
    locked = Machine.objects.select_for_update().filter(id__in=set(machine_ids)).order_by("id")
    return {machine.id: machine for machine in locked}


def pool_lock(pool_id: int) -> None:
    """Nobody removes or changes the pool until the transaction ends. Raises NotFound when it has gone.

    Not FOR UPDATE, for which a transaction that puts a machine into it would have to be waited for.
    """
    if not Pool.objects.select_for_update(no_key=True).filter(id=pool_id).values_list("id"):
        raise NotFound("This pool was removed.")


def machines_revise(machine_ids: Iterable[int], *, placement_changed: bool) -> None:
    """Raises the desired revision of machines and wakes their agents on commit.

    `placement_changed`: what placement sees is different too (something was taken or released).
    """
    ids = sorted(machines_lock(machine_ids))
    if not ids:
        return
    changes = {"desired_revision": F("desired_revision") + 1}
    if placement_changed:
        changes["version"] = F("version") + 1
    Machine.objects.filter(id__in=ids).update(**changes)
    transaction.on_commit(lambda: machines_wake(ids))


def machines_wake(ids: Iterable[int]) -> None:
    publish(WAKE_CHANNEL, ",".join(str(each) for each in ids))


def machines_wake_lagging() -> None:
    """Wakes every machine whose agent has not applied its newest desired state: a lost message costs seconds."""
    lagging = Machine.objects.filter(desired_revision__gt=F("applied_revision"), unreachable_at=None)
    ids = list(lagging.values_list("id", flat=True))
    if ids:
        machines_wake(ids)


@transaction.atomic
def machine_label_set(*, machine: Machine, key: str, value: str, actor: Actor) -> None:
    """Sets a label; it wins over one that was found.

    Raises Invalid for bad syntax, for keys that are reserved, and for more labels than a machine may have.
    """
    name_checked("key", check_label_key, key)
    name_checked("value", check_label_value, value)
    _require_settable(machine, key)
    before = MachineLabel.objects.filter(machine=machine, key=key, found=False).first()
    MachineLabel.objects.update_or_create(
        machine=machine, key=key, found=False, defaults={"value": value, "set_by": actor.name}
    )
    machine_changed(machine, actor, "label", {key: before.value if before else None}, {key: value})


def _require_settable(machine: Machine, key: str) -> None:
    domain, slash, _ = key.partition("/")
    reserved = slash and f".{domain}".endswith(f".{RESERVED_DOMAIN}")
    if reserved and key not in TOPOLOGY_LABELS:
        raise _label_refused(
            f"Keys below {RESERVED_DOMAIN} are reserved; {shown(key)} is none that can be set."
        )
    others = MachineLabel.objects.filter(machine=machine, found=False).exclude(key=key)
    if others.count() >= MAX_LABELS:
        raise _label_refused(f"{machine.name} has {MAX_LABELS} labels already. Remove one first.")


def _label_refused(message: str) -> Invalid:
    return Invalid("label", message, errors=(FieldError("key", "label", message),))


@transaction.atomic
def machine_label_unset(*, machine: Machine, key: str, actor: Actor) -> None:
    """Takes back what a person set: what was found counts again."""
    before = MachineLabel.objects.filter(machine=machine, key=key, found=False).first()
    if before is None:
        return
    before.delete()
    machine_changed(machine, actor, "label", {key: before.value}, {key: None})


@transaction.atomic
def machine_cordon(*, machine: Machine, actor: Actor, reason: str = "") -> None:
    """Takes it out of placement; what runs there goes on."""
    Machine.objects.filter(id=machine.id, cordoned_at=None).update(
        cordoned_at=timezone.now(), cordoned_by=actor.name, cordon_reason=reason[:200]
    )
    machine_changed(machine, actor, "cordon", None, {"reason": reason})


@transaction.atomic
def machine_uncordon(*, machine: Machine, actor: Actor) -> None:
    Machine.objects.filter(id=machine.id).update(
        cordoned_at=None, cordoned_by="", cordon_reason="", draining_at=None, drain_until=None
    )
    machine_changed(machine, actor, "uncordon", None, None)


def name_checked(path: str, check: Callable[[str], str], value: str) -> None:
    """Raises Invalid, at `path`, for what `check` says is no name."""
    try:
        check(value)
    except BadName as error:
        message = str(error)
        raise Invalid("name", message, errors=(FieldError(path, "name", message),)) from error


def machine_changed(machine: Machine, actor: Actor, action: str, before: object, after: object) -> None:
    """Notes in the audit log what `actor` did, and has placement look again. In the caller's transaction."""
    Machine.objects.filter(id=machine.id).update(version=F("version") + 1)
    audit_record(
        actor=actor,
        organization=machine.cluster.organization,
        action=f"machine.{action}",
        target=machine.name,
        before=before,
        after=after,
    )
    cluster_changed.send(sender=Machine, cluster_id=machine.cluster_id)


def machines_seen(ids: Iterable[int], at: float) -> None:
    """Notes in Redis that agents were heard, at this second of the console's clock. One round trip for all."""
    notes = client().pipeline(transaction=False)
    for machine_id in ids:
        notes.set(seen_key(machine_id), f"{at:.3f}", ex=SEEN_KEPT_SECONDS)
    attempt(notes.execute)


def seen_key(machine_id: int) -> str:
    return f"astraeus:seen:{machine_id}"
