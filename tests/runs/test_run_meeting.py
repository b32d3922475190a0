"""How a gang's members find each other: network, addresses, names, peers, and the leader's port."""

import base64

import pytest
from django.db import IntegrityError, transaction

from common.errors import Conflict
from machines.mesh import mesh_range_set, mesh_store
from machines.models import Machine
from runs.desired import desired_load
from runs.meeting import Member, names_of
from runs.models import Allocation, RunAttempt
from tests import factories
from tests.support.gangs import Gang, replaced
from wire.assignments import Assignment, Desired
from wire.mesh import MeshReport

pytestmark = pytest.mark.django_db


def key(number: int) -> str:
    return base64.b64encode(number.to_bytes(32, "big")).decode()


def report(number: int, port: int = 51820) -> MeshReport:
    return MeshReport(public_key=key(number), endpoint=f"10.20.0.{10 + number}:{port}")


@pytest.fixture
def meshed(house) -> list[Machine]:
    """gpu-01 to gpu-03: 8 H100s each, no RDMA, on the mesh as 100.64.0.0/24 to 100.64.2.0/24."""
    machines = [factories.machine_make(house, f"gpu-0{number}", fabric=None) for number in (1, 2, 3)]
    for number, machine in enumerate(machines, 1):
        mesh_store(machine, report(number))
    return machines


def placed(house: factories.House, name: str = "ddp-resnet50", *, machines: int = 2, gpus: int = 8) -> Gang:
    """A gang that takes whatever network there is, placed by a pass."""
    document = factories.document_make(name, gpus=gpus * machines, machines=machines)
    resources = document["spec"]["task_template"]["requested_resources"]
    del resources["network"], resources["topology"]
    return replaced(Gang(factories.run_pending(house, name, document=document)))


def desired(gang: Gang, rank: int) -> tuple[Desired, Assignment]:
    member = gang.members[rank]
    _, found = desired_load(member.machine_id)
    return found, next(each for each in found.assignments if each.id == str(member.id))


def test_names_lead_to_the_leader_and_to_each_worker():
    members = [Member("ddp-0", "10.0.0.1", False), Member("ddp-1", "10.0.0.2", False)]
    assert names_of("ddp", "vision", "main", members) == {
        "ddp": "10.0.0.1",
        "ddp-0": "10.0.0.1",
        "ddp-1": "10.0.0.2",
        "ddp.vision.main.astraeus": "10.0.0.1",
        "ddp-0.vision.main.astraeus": "10.0.0.1",
        "ddp-1.vision.main.astraeus": "10.0.0.2",
    }
    assert names_of("ddp", "vision", "main", []) == {}


def test_machines_with_rdma_share_their_network_with_workers(house, three):
    for number, machine in enumerate(three, 1):
        mesh_store(machine, report(number))
    gang = placed(house)
    state, worker = desired(gang, 1)
    names = [member.worker.name for member in gang.members]
    addresses = [member.machine.address for member in gang.members]
    assert (worker.mesh, state.mesh.peers) == (None, ())
    assert worker.names["ddp-resnet50"] == addresses[0]
    assert [worker.names[name] for name in names] == addresses


def test_elsewhere_a_gang_is_on_the_mesh_and_its_machines_are_peers(house, meshed):
    gang = placed(house)
    (leader_state, leader), (state, worker) = desired(gang, 0), desired(gang, 1)
    addresses = [member.launch["address"] for member in gang.members]
    machines = [member.machine for member in gang.members]
    assert addresses == [f"100.64.{machine.mesh_number}.2" for machine in machines]
    assert [str(address) for address in worker.mesh.members] == addresses
    assert (str(worker.mesh.leader), str(worker.mesh.address)) == tuple(addresses)
    assert (worker.mesh.master_address, worker.mesh.master_port) == (machines[0].address, 29500)
    assert worker.names["ddp-resnet50.vision.main.astraeus"] == addresses[0] == worker.names["ddp-resnet50"]
    assert worker.names == leader.names
    assert [peer.machine for peer in state.mesh.peers] == [machines[0].name]
    assert [peer.machine for peer in leader_state.mesh.peers] == [machines[1].name]
    idle = next(machine for machine in meshed if machine.id not in {m.id for m in machines})
    assert desired_load(idle.id)[1].mesh.peers == (), "who shares no gang has no peers"


def test_two_workers_of_a_machine_have_two_addresses(house, meshed):
    Machine.objects.exclude(id=meshed[0].id).update(cordoned_at=meshed[0].created_at)
    gangs = [placed(house, name, machines=1, gpus=4) for name in ("one", "two")]
    assert [gang.members[0].launch["address"] for gang in gangs] == ["100.64.0.2", "100.64.0.3"]
    ports = RunAttempt.objects.order_by("id").values_list("master_port", flat=True)
    assert list(ports) == [29500, 29501]
    held = Allocation.objects.filter(mesh_address="100.64.0.2").get()
    with pytest.raises(IntegrityError), transaction.atomic():
        Allocation.objects.filter(mesh_address="100.64.0.3").update(mesh_address=held.mesh_address)
    gangs[0].start().end(0)
    assert not Allocation.objects.filter(mesh_address="100.64.0.2", released_at=None).exists()


def test_a_machine_that_moves_tells_its_gangs_machines_alone(
    house, meshed, django_capture_on_commit_callbacks
):
    gang = placed(house)
    leader, member = (member.machine for member in gang.members)
    idle = next(machine for machine in meshed if machine.id not in {leader.id, member.id})
    before = dict(Machine.objects.values_list("id", "desired_revision"))
    number = int(leader.address.rsplit(".", 1)[1]) - 10
    with django_capture_on_commit_callbacks(execute=True):
        mesh_store(Machine.objects.get(id=leader.id), report(number, port=4242))
    after = dict(Machine.objects.values_list("id", "desired_revision"))
    assert [after[machine.id] - before[machine.id] for machine in (leader, member, idle)] == [1, 1, 0]
    assert desired(gang, 1)[0].mesh.peers[0].endpoint.endswith(":4242")
    with pytest.raises(Conflict, match=r"Workers are on the mesh, on gpu-0\d for one"):
        mesh_range_set(cluster=house.cluster, mesh_range="10.192.0.0/10", actor=factories.actor_of(house.ana))


def test_a_gang_with_one_machine_off_the_mesh_shares_the_machines_networks(house, meshed):
    Machine.objects.filter(id=meshed[2].id).update(mesh_flaw="This kernel has no WireGuard.")
    gang = placed(house, machines=3)
    assert [member.launch["on_mesh"] for member in gang.members] == [False] * 3
    assert [member.launch["address"] for member in gang.members] == [
        member.machine.address for member in gang.members
    ]


def test_what_a_machine_is_told_stays_small_in_a_large_cluster(house, meshed):
    gang = placed(house)
    before = len(desired(gang, 1)[0].model_dump_json())
    template = Machine.objects.get(id=meshed[0].id)
    Machine.objects.bulk_create(
        Machine(
            cluster=template.cluster,
            pool=template.pool,
            name=f"other-{number}",
            runtime="docker",
            mesh_number=number + 10,
            mesh_key=key(number + 10),
        )
        for number in range(2000)
    )
    assert len(desired(gang, 1)[0].model_dump_json()) == before


@pytest.mark.parametrize(("boots", "ports"), [(("b", "b"), {29500, 29501}), (("a", "b"), {29500})])
def test_leaders_of_two_agents_on_one_host_get_two_ports(house, boots, ports):
    for number, boot in enumerate(boots):
        machine = factories.machine_make(house, f"gpu-0{number}", fabric=None)
        Machine.objects.filter(id=machine.id).update(boot_id=boot, address="127.0.0.1")
    for name in ("one", "two"):
        placed(house, name, machines=1)
    assert set(RunAttempt.objects.values_list("master_port", flat=True)) == ports
