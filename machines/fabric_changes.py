"""What operators make of a fabric that was found: its name, and whether it is there for storage."""

from django.db import IntegrityError, transaction
from django.db.models import F

from common.errors import Conflict, FieldError, Invalid, NotFound
from machines.models import Cluster, Fabric, Machine
from machines.services import machines_lock, name_checked
from machines.signals import cluster_changed
from tenancy.access import Actor
from tenancy.services import audit_record
from wire.names import check_label_value


@transaction.atomic
def fabric_change(
    *, fabric: Fabric, actor: Actor, name: str | None = None, storage: bool | None = None
) -> None:
    """Gives it another name, or another use; None leaves either as it is. Its identity stays what was found.

    Machines that a label puts on the fabric keep the label, and with it the former name. Raises Invalid for what is
    no name, Conflict for one that another fabric has.
    """
    if name is not None:
        _require_name(name)
    there = Machine.objects.filter(rdma_ports__fabric=fabric).values_list("id", flat=True)
    machines = machines_lock(there)
    # As for fabrics that are found: two must not take one name at once.
    Cluster.objects.select_for_update().get(id=fabric.cluster_id)
    now = Fabric.objects.filter(id=fabric.id).first()
    if now is None:
        raise NotFound(f"{fabric.name} is gone.")
    before = {"name": now.name, "storage": now.storage}
    after = {
        "name": before["name"] if name is None else name,
        "storage": before["storage"] if storage is None else storage,
    }
    if after == before:
        return
    _write(now, name, after)
    Machine.objects.filter(id__in=machines).update(version=F("version") + 1)
    audit_record(
        actor=actor,
        organization=fabric.cluster.organization,
        action="fabric.change",
        target=now.name,
        before=before,
        after=after,
    )
    cluster_changed.send(sender=Fabric, cluster_id=fabric.cluster_id)


def _require_name(name: str) -> None:
    name_checked("metadata.name", check_label_value, name)
    if not name:
        message = "A fabric needs a name."
        raise Invalid("name", message, errors=(FieldError("metadata.name", "name", message),))


def _write(fabric: Fabric, name: str | None, after: dict[str, object]) -> None:
    try:
        with transaction.atomic():
            Fabric.objects.filter(id=fabric.id).update(**after)
    except IntegrityError as error:
        message = f"{fabric.cluster.slug} has a fabric named {name}."
        raise Conflict(
            "name_taken", message, errors=(FieldError("metadata.name", "name_taken", message),)
        ) from error
