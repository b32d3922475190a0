"""Three machines on one switch, joined by real WireGuard (the kernel's, or wireguard-go)."""

import stat
import time
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from tests.agent.agents import eventually
from tests.docker.meshed import MeshMachine, Worker, gang
from tests.docker.spaces import Site

pytestmark = pytest.mark.docker

CUT_OFF_SECONDS = 10


@pytest.fixture
def machines(site: Site, tmp_path: Path) -> Iterator[list[MeshMachine]]:
    machines = [MeshMachine(site.add(), tmp_path / f"m{n}", n) for n in range(3)]
    try:
        for machine in machines:
            machine.start()
        yield machines
    finally:
        for machine in machines:
            machine.clean()


def test_a_gang_meets_on_the_mesh_and_nobody_else_does(machines: list[MeshMachine]) -> None:
    one, two, three = machines
    for machine in machines:
        assert stat.S_IMODE((machine.state / "mesh.key").stat().st_mode) == 0o600
    # The first state comes before the engine has made a bridge; the others once there are workers.
    for machine in machines:
        assert machine.tell(machine.order()) == {"flaw": "", "mtu": 1420}
    leader, second, stranger = one.add_worker(), two.add_worker(), three.add_worker()
    neighbour = one.add_worker()
    first, other = gang(one, leader, second)
    alone = gang(three, stranger)
    nearby = gang(one, neighbour)
    assert one.tell(one.order(two), first, *nearby)["flaw"] == ""
    assert two.tell(two.order(one), other)["flaw"] == ""
    # The third machine knows the first one: its workers still reach nobody of another gang.
    assert three.tell(three.order(one), *alone)["flaw"] == ""
    leader.serve()

    by_worker = second.connect(leader.address)
    assert by_worker.ask("hello") == f"{second.address} hello", "its own address, not its machine's"
    by_machine = second.connect(one.space.address)
    assert by_machine.ask("hello") == f"{second.address} hello", "MASTER_ADDR leads there too"
    assert leader.connect(one.space.address).ask("hello").endswith(" hello"), "for the leader itself as well"
    assert not stranger.reaches(leader.address)
    assert not stranger.reaches(one.space.address), "MASTER_PORT is open to the gang alone"
    assert not neighbour.reaches(one.space.address)

    # A machine joins, another leaves, the agent is killed and comes back: the connection goes on.
    one.process.kill()
    one.start()
    assert one.tell(one.order(two, three), first, *nearby)["flaw"] == ""
    assert one.peers() == {two.report.public_key, three.report.public_key}
    assert one.tell(one.order(two), first)["flaw"] == ""
    assert one.peers() == {two.report.public_key}
    assert by_machine.ask("still") == f"{second.address} still"

    two.space.plug(connected=False)
    cut_at = time.monotonic()
    by_worker.process.stdin.write("late\n")
    eventually(lambda: time.monotonic() - cut_at > CUT_OFF_SECONDS, "so long without a cable", 15)
    two.space.plug(connected=True)
    assert by_worker.hear() == f"{second.address} late", "what was sent meanwhile arrives"

    assert two.tell(None)["flaw"] == ""
    assert two.names.interface not in two.space.call("ip", "link")
    assert two.names.chains not in two.space.call("iptables-save"), "a machine that has left keeps nothing"


def test_an_interface_that_was_taken_away_comes_back(machines: list[MeshMachine]) -> None:
    one, two, _ = machines
    leader, second = _two_workers(one, two)
    first, other = gang(one, leader, second)
    assert one.tell(one.order(two), first)["flaw"] == ""
    assert two.tell(two.order(one), other)["flaw"] == ""
    leader.serve()
    assert second.reaches(leader.address)
    two.space.call("ip", "link", "delete", two.names.interface)
    two.space.call("iptables", "-t", "nat", "-D", "PREROUTING", "-j", two.names.chain("PRE"))
    eventually(lambda: second.reaches(one.space.address), "the mesh is whole again", 60)


def _two_workers(one: MeshMachine, two: MeshMachine) -> tuple[Worker, Worker]:
    for machine in (one, two):
        assert machine.tell(machine.order())["flaw"] == ""
    return one.add_worker(), two.add_worker()


def test_a_machine_that_is_kept_off_the_mesh_reports_none_and_leaves_nothing(
    machines: list[MeshMachine],
) -> None:
    one = machines[0]
    assert one.tell(one.order(machines[1]))["flaw"] == ""
    assert one.names.interface in one.space.call("ip", "link")
    assert one.names.chain("FWD") in one.space.call("iptables", "-S")

    assert one.start_off() == "None"
    assert one.tell(None)["flaw"] == ""
    assert one.names.interface not in one.space.call("ip", "link")
    assert one.names.chain("FWD") not in one.space.call("iptables", "-S")


def test_a_range_that_cuts_the_machines_own_network_is_not_taken(machines: list[MeshMachine]) -> None:
    one = machines[0]
    network = one.space.address.rsplit(".", 1)[0] + ".0/24"
    order = one.order().model_copy(update={"range": IPv4Network(network)})
    assert one.tell(order)["flaw"] == (
        f"The mesh's range {network} overlaps with {network} on eth0. Set another range for the cluster."
    )
    assert one.names.interface not in one.space.call("ip", "link")
    assert one.tell(one.order())["flaw"] == "", "another range, and it works"
