"""How the members of a gang find each other: on which network they are, at which addresses, under which names."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from machines.mesh import mesh_subnet
from machines.models import Machine, RdmaPort
from placement import Placement
from runs.models import Allocation, Assignment, RunAttempt
from wire.mesh import WorkerMesh, worker_addresses

DOMAIN = "astraeus"


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    address: str
    on_mesh: bool


def mesh_addresses(placement: Placement, machines: Mapping[int, Machine]) -> dict[int, str]:
    """Machine id → the address of the gang's worker there. Empty: the gang shares its machines' networks.

    A gang is on the mesh whole or not at all, so that its members reach each other at one kind of address: where every
    machine is on it and none has an RDMA port that is up. The caller holds the machines' locks.
    """
    if not all(machine.on_mesh for machine in machines.values()):
        return {}
    if RdmaPort.objects.filter(machine__in=machines, state="ACTIVE").exists():
        return {}
    taken: dict[int, set[str | None]] = defaultdict(set)
    held = Allocation.objects.filter(machine__in=machines, released_at=None, mesh_address__isnull=False)
    for machine_id, address in held.values_list("machine_id", "mesh_address"):
        taken[machine_id].add(address)
    found = {rank.machine_id: _free(machines[rank.machine_id], taken) for rank in placement.ranks}
    return {machine: address for machine, address in found.items() if address} if all(found.values()) else {}


def _free(machine: Machine, taken: Mapping[int, set[str | None]]) -> str:
    used = taken.get(machine.id, set())
    addresses = worker_addresses(IPv4Network(mesh_subnet(machine)))
    return next((address for address in addresses if address not in used), "")


def members_load(assignments: Iterable[Assignment]) -> dict[int, list[Member]]:
    """Attempt id → its gang in the order of the ranks; an attempt from before members had addresses is left out."""
    attempts = {each.attempt_id for each in assignments if each.launch.get("address")}
    rows = Assignment.objects.filter(attempt__in=attempts).order_by("worker__rank")
    found: dict[int, list[Member]] = defaultdict(list)
    for attempt, name, address, on_mesh in rows.values_list(
        "attempt_id", "worker__name", "launch__address", "launch__on_mesh"
    ):
        found[attempt].append(Member(name, address, bool(on_mesh)))
    return dict(found)


def names_of(run: str, workspace: str, cluster: str, members: Iterable[Member]) -> dict[str, str]:
    """The run's name is its leader's, each worker's its own; all of them also with the workspace and the cluster."""
    members = list(members)
    short = {run: members[0].address} | {member.name: member.address for member in members} if members else {}
    return short | {f"{name}.{workspace}.{cluster}.{DOMAIN}": address for name, address in short.items()}


def meeting_of(assignment: Assignment, members: list[Member]) -> dict[str, Any]:
    """The fields of `wire.assignments.Assignment` that say where the others are."""
    if not members:
        return {}
    run, attempt = assignment.attempt.run, assignment.attempt
    names = names_of(run.name, run.workspace.slug, run.cluster.slug, members)
    on_mesh = members[0].on_mesh
    return {"names": names, "mesh": _mesh(assignment, attempt, members) if on_mesh else None}


def _mesh(assignment: Assignment, attempt: RunAttempt, members: list[Member]) -> WorkerMesh:
    return WorkerMesh.model_validate(
        {
            "address": assignment.launch["address"],
            "members": [member.address for member in members],
            "leader": members[0].address,
            "master_address": attempt.leader_address,
            "master_port": attempt.master_port,
        }
    )
