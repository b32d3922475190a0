"""The mesh's part in the database: which subnet a machine has, with which key and where it is reached.

A machine's number names its subnet of the cluster's range, so two that overlap would be two equal numbers, which the
database forbids. It is given out when the machine's agent first reports a key, and kept until the machine is removed.
"""

from collections.abc import Iterable
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError
from typing import Any

from django.db import connection, transaction

from common.errors import Conflict, FieldError, Invalid
from machines.models import Cluster, Machine
from machines.services import machines_revise
from tenancy.access import Actor
from tenancy.services import audit_record
from wire.mesh import MeshOrder, MeshPeer, MeshReport, subnet_of, subnets_in
from wire.names import shown

LOCK_SPACE = 0x4D657368
"""First key of the advisory locks under which numbers are given out ("Mesh")."""
FEWEST_SUBNETS = 16
SHARED_SPACE = IPv4Network("100.64.0.0/10")


def lowest_free(taken: Iterable[int | None], room: int) -> int | None:
    held = set(taken)
    return next((number for number in range(min(room, len(held) + 1)) if number not in held), None)


@transaction.atomic
def mesh_store(machine: Machine, report: MeshReport | None) -> None:
    """Takes over what the agent says. The caller holds the machine's lock, and stores the row's other fields.

    The machine's own agent and those of machines that share a gang with it hear of what is new to them.
    """
    said = _said(machine, report)
    changed = {name for name, value in said.items() if getattr(machine, name) != value}
    if not changed:
        return
    for name, value in said.items():
        setattr(machine, name, value)
    machine.save(update_fields=sorted(changed))
    if changed - {"mesh_flaw"}:
        machines_revise([machine.id], placement_changed=False)
        # In a transaction of its own: theirs are other machines' locks, and this one's number may lie after them.
        transaction.on_commit(lambda: mesh_peers_revise(machine.id))


def _said(machine: Machine, report: MeshReport | None) -> dict[str, Any]:
    if report is None:
        return {"mesh_key": "", "mesh_endpoint": "", "mesh_flaw": ""}
    _numbers_lock(machine.cluster_id)
    twin = Machine.objects.filter(cluster=machine.cluster_id, mesh_key=report.public_key).exclude(
        id=machine.id
    )
    name = twin.values_list("name", flat=True).first()
    if name is not None:
        return {
            "mesh_key": "",
            "mesh_endpoint": "",
            "mesh_flaw": f"It has the WireGuard key of {name}, as copies of a disk do. Remove mesh.key from its "
            "agent's state directory and restart the agent.",
        }
    number = machine.mesh_number if machine.mesh_number is not None else _number_free(machine.cluster)
    return {
        "mesh_key": report.public_key,
        "mesh_endpoint": report.endpoint,
        "mesh_number": number,
        "mesh_flaw": report.flaw or ("" if number is not None else _used_up(machine.cluster)),
    }


def _numbers_lock(cluster_id: int) -> None:
    """Until the transaction ends, which waits for nobody else's machine meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [LOCK_SPACE, cluster_id])


def _number_free(cluster: Cluster) -> int | None:
    given = Machine.objects.filter(cluster=cluster, mesh_number__isnull=False)
    return lowest_free(given.values_list("mesh_number", flat=True), subnets_in(cluster.mesh_range))


def _used_up(cluster: Cluster) -> str:
    return (
        f"The mesh's range {cluster.mesh_range} has room for {subnets_in(cluster.mesh_range):,} machines, and all "
        "of it is given out. Set a larger range for the cluster, or remove machines that are gone."
    )


def _number_give(machine: Machine, number: int, used_up: str) -> None:
    """`used_up`: what was said of machines that found none, which is over. What its agent says against it stays."""
    flaw = "" if machine.mesh_flaw == used_up else machine.mesh_flaw
    Machine.objects.filter(id=machine.id).update(mesh_number=number, mesh_flaw=flaw)


def mesh_peers_revise(machine_id: int) -> None:
    """Tells the machines that share a gang with this one."""
    # Assignments belong to the app above; their relation to machines is all that is read of them.
    attempts = Machine.objects.filter(id=machine_id, assignments__gone_at=None).values("assignments__attempt")
    others = Machine.objects.filter(assignments__attempt__in=attempts, assignments__gone_at=None).exclude(
        id=machine_id
    )
    with transaction.atomic():
        machines_revise(others.values_list("id", flat=True).distinct(), placement_changed=False)


def mesh_order(machine: Machine, others: Iterable[Machine]) -> MeshOrder | None:
    """What the machine's agent is told; `others` are the machines with which it shares a gang on the mesh."""
    if not _has_place(machine):
        return None
    whole = machine.cluster.mesh_range
    peers = tuple(
        MeshPeer(
            machine=other.name,
            public_key=other.mesh_key,
            endpoint=other.mesh_endpoint,
            subnet=_subnet(whole, other),
        )
        for other in others
        if other.id != machine.id and _has_place(other)
    )
    return MeshOrder(range=IPv4Network(whole), subnet=_subnet(whole, machine), peers=peers)


def _has_place(machine: Machine) -> bool:
    return machine.mesh_number is not None and machine.mesh_key != ""


def _subnet(whole: str, machine: Machine) -> IPv4Network:
    assert machine.mesh_number is not None  # noqa: S101 - for mypy: asked before
    return subnet_of(whole, machine.mesh_number)


def mesh_subnet(machine: Machine) -> str:
    """As people see it; empty for a machine without."""
    return str(_subnet(machine.cluster.mesh_range, machine)) if machine.mesh_number is not None else ""


def mesh_leave(machine: Machine) -> None:
    """A removed machine's subnet and key are free, for one that waits for a subnet first."""
    Machine.objects.filter(id=machine.id).update(
        mesh_key="", mesh_endpoint="", mesh_number=None, mesh_flaw=""
    )
    cluster_id = machine.cluster_id
    transaction.on_commit(lambda: mesh_numbers_give(cluster_id))


@transaction.atomic
def mesh_numbers_give(cluster_id: int) -> None:
    """Subnets for machines that found none left, as far as there are now."""
    cluster = Cluster.objects.get(id=cluster_id)
    without = (
        Machine.objects.select_for_update().filter(cluster=cluster, mesh_number=None).exclude(mesh_key="")
    )
    waiting = list(without.order_by("id"))
    if not waiting:
        return
    _numbers_lock(cluster_id)
    for machine in waiting:
        number = _number_free(cluster)
        if number is not None:
            _number_give(machine, number, _used_up(cluster))
    machines_revise([machine.id for machine in waiting], placement_changed=False)


@transaction.atomic
def mesh_range_set(*, cluster: Cluster, mesh_range: str, actor: Actor) -> None:
    """Another range for the cluster's machines: all of them get subnets of it.

    Raises Invalid for what is no fitting range, Conflict while a worker is on the mesh: it would lose its address.
    """
    wanted = str(mesh_range_checked(mesh_range))
    machines = Machine.objects.select_for_update(of=("self",)).filter(cluster=cluster).order_by("id")
    locked = list(machines)
    _numbers_lock(cluster.id)
    current = Cluster.objects.get(id=cluster.id)
    before = current.mesh_range
    if wanted == before:
        return
    _require_apart(wanted, locked)
    _require_no_worker(cluster)
    given = [machine for machine in locked if machine.mesh_key]
    if len(given) > subnets_in(wanted):
        raise _range_refused(
            f"{wanted} has room for {subnets_in(wanted):,} machines, and {len(given):,} are on the mesh."
        )
    Cluster.objects.filter(id=cluster.id).update(mesh_range=wanted)
    machines.update(mesh_number=None)
    for number, machine in enumerate(given):
        _number_give(machine, number, _used_up(current))
    machines_revise([machine.id for machine in given], placement_changed=False)
    audit_record(
        actor=actor,
        organization=cluster.organization,
        action="cluster.mesh",
        target=cluster.slug,
        before={"range": before},
        after={"range": wanted},
    )


def mesh_range_checked(text: str) -> IPv4Network:
    """Raises Invalid for what is no range, is too small for a cluster, or belongs to others."""
    try:
        network = IPv4Network(text)
    except (AddressValueError, NetmaskValueError, ValueError) as error:
        raise _range_refused(f"{shown(text)} is no IPv4 range. It looks like 10.192.0.0/10.") from error
    if subnets_in(text) < FEWEST_SUBNETS:
        raise _range_refused(
            f"{network} is too small: every machine gets a /24 of it, and it has to have room for {FEWEST_SUBNETS} "
            "machines. Take a /20 or a larger one."
        )
    special = network.is_loopback or network.is_link_local or network.is_multicast or network.is_reserved
    if special or not (network.is_private or network.subnet_of(SHARED_SPACE)):
        raise _range_refused(
            f"{network} belongs to others. Take one of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or {SHARED_SPACE}."
        )
    return network


def _require_apart(wanted: str, machines: Iterable[Machine]) -> None:
    network = IPv4Network(wanted)
    for machine in machines:
        try:
            inside = IPv4Address(machine.address) in network
        except AddressValueError:
            continue  # none yet, or one of IPv6
        if inside:
            raise _range_refused(
                f"{wanted} overlaps with the machines' own network: {machine.name} is {machine.address} there."
            )


def _require_no_worker(cluster: Cluster) -> None:
    held = Machine.objects.filter(
        cluster=cluster, assignments__gone_at=None, assignments__launch__on_mesh=True
    )
    machine = held.order_by("name").first()
    if machine is not None:
        raise Conflict(
            "in_use", f"Workers are on the mesh, on {machine.name} for one: another range would cut them off."
        )


def _range_refused(message: str) -> Invalid:
    return Invalid("mesh_range", message, errors=(FieldError("spec.mesh_range", "mesh_range", message),))
