"""What an agent decides about the mesh: peers, rules, clashes; and the names that a worker finds."""

import base64
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from agent.config import Config
from agent.daemon import mesh_of
from agent.mesh.plan import Seen, interface_parse, names_of, overlap, peers_change, rules
from agent.names import hosts_file
from tests.agent.agents import worker
from wire.mesh import MeshOrder, MeshPeer, WorkerMesh, subnet_of

RANGE = "100.64.0.0/10"
NOW = 1_000_000


def key(number: int) -> str:
    return base64.b64encode(bytes([number]) * 32).decode()


def peer(number: int, endpoint: str | None = None) -> MeshPeer:
    where = f"10.0.0.{number}:51820" if endpoint is None else endpoint
    return MeshPeer(
        machine=f"m{number}", public_key=key(number), endpoint=where, subnet=subnet_of(RANGE, number)
    )


def seen(number: int, *, endpoint: str = "", silent_for: int = 0) -> Seen:
    there = endpoint or f"10.0.0.{number}:51820"
    return Seen(there, frozenset({str(subnet_of(RANGE, number))}), NOW - silent_for)


def test_peers_come_and_go_and_the_others_are_not_named():
    words = peers_change([peer(1), peer(2)], {key(1): seen(1), key(3): seen(3)}, NOW)
    assert words == [
        *("peer", key(3), "remove"),
        *("peer", key(2), "persistent-keepalive", "25", "allowed-ips", "100.64.2.0/24"),
        *("endpoint", "10.0.0.2:51820"),
    ]
    assert peers_change([peer(1)], {key(1): seen(1)}, NOW) == []


def test_a_peer_that_answers_is_where_it_is():
    moved = {key(1): seen(1, endpoint="203.0.113.9:4242", silent_for=100)}
    assert peers_change([peer(1)], moved, NOW) == [], "a NAT has given it another address"
    silent = {key(1): seen(1, endpoint="203.0.113.9:4242", silent_for=181)}
    assert peers_change([peer(1)], silent, NOW) == ["peer", key(1), "endpoint", "10.0.0.1:51820"]
    assert peers_change([peer(1, "")], silent, NOW) == [], "one that nobody reaches comes by itself"


def test_a_peer_with_another_subnet_gets_it():
    wrong = {key(1): Seen("10.0.0.1:51820", frozenset({"100.64.9.0/24"}), NOW)}
    assert peers_change([peer(1)], wrong, NOW) == ["peer", key(1), "allowed-ips", "100.64.1.0/24"]


def test_what_wireguard_says_is_understood():
    dump = (
        f"PRIVATE\t{key(9)}\t51820\toff\n"
        f"{key(1)}\t(none)\t10.0.0.1:51820\t100.64.1.0/24\t999990\t1\t2\t25\n"
        f"{key(2)}\t(none)\t(none)\t(none)\t0\t0\t0\toff\n"
    )
    found = interface_parse(dump)
    assert (found.public_key, found.port) == (key(9), 51820)
    assert found.peers == {
        key(1): Seen("10.0.0.1:51820", frozenset({"100.64.1.0/24"}), 999_990),
        key(2): Seen("", frozenset(), 0),
    }


def test_kept_off_from_the_beginning_no_key_is_made(tmp_path: Path):
    config = Config(
        server="http://c", credential="c", name="gpu-01", runtime="docker", mesh=False, state=tmp_path
    )
    mesh = mesh_of(config, lambda: "10.20.0.11", lambda: None)
    mesh.start()
    assert mesh.report() is None
    assert list(tmp_path.iterdir()) == []


def test_names_on_the_machine_are_of_its_key_and_short_enough():
    names = names_of(key(1))
    assert names != names_of(key(2))
    assert names.interface.startswith("wg"), "NCCL_SOCKET_IFNAME leaves these out"
    assert max(len(names.interface), len(names.bridge)) <= 15
    assert len(names.chain("POST")) <= 28


@pytest.mark.parametrize(
    ("target", "interface", "said"),
    [
        ("10.20.0.0/16", "eth0", ""),
        ("default", "eth0", ""),
        ("0.0.0.0/0", "eth0", ""),
        ("100.64.3.0/24", "own", ""),
        ("100.100.0.0/16", "tailscale0", "100.100.0.0/16 on tailscale0"),
        ("100.0.0.0/8", "eth1", "100.0.0.0/8 on eth1"),
        ("100.64.0.9", "eth1", "100.64.0.9/32 on eth1"),
    ],
)
def test_a_range_that_takes_packets_from_another_network_is_found(target, interface, said):
    assert overlap(IPv4Network(RANGE), [(target, interface)], ["own"]) == said


def place(master: str = "10.0.0.1", *, own: str = "100.64.1.2") -> WorkerMesh:
    return WorkerMesh.model_validate(
        {
            "address": own,
            "members": ["100.64.1.2", "100.64.2.2"],
            "leader": "100.64.1.2",
            "master_address": master,
            "master_port": 29501,
        }
    )


def rules_for(place: WorkerMesh) -> list[str]:
    number = int(str(place.address).split(".")[2])
    order = MeshOrder(range=IPv4Network(RANGE), subnet=subnet_of(RANGE, number))
    names = names_of(key(1))
    return rules(names, order, [place]).replace(names.chains, "C").splitlines()


def test_the_leaders_port_leads_over_the_mesh_and_to_the_gang_alone():
    leader, member = rules_for(place()), rules_for(place(own="100.64.2.2"))
    way = "-d 10.0.0.1 -p tcp --dport 29501 -j DNAT --to-destination 100.64.1.2"
    assert f"-A C-PRE -s 100.64.1.2 {way}" in leader
    assert f"-A C-PRE -s 100.64.2.2 {way}" in member
    assert "-A C-POST -s 100.64.1.2 -d 100.64.1.2 -j MASQUERADE" in leader
    assert [line for line in member if line.startswith("-A C-FWD")] == [
        "-A C-FWD -d 100.64.2.0/24 -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        "-A C-FWD -s 100.64.2.0/24 -d 100.64.0.0/10 -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        "-A C-FWD -s 100.64.1.2 -d 100.64.2.2 -j ACCEPT",
        "-A C-FWD -s 100.64.2.2 -d 100.64.1.2 -j ACCEPT",
        "-A C-FWD -s 100.64.2.2 -d 100.64.2.2 -j ACCEPT",
        "-A C-FWD -d 100.64.2.0/24 -j DROP",
        "-A C-FWD -s 100.64.2.0/24 -d 100.64.0.0/10 -j DROP",
    ]


@pytest.mark.parametrize("master", ["gpu-01.example.com", "fd00::1", "10.0.0.1 -j ACCEPT"])
def test_a_machine_that_is_no_ipv4_address_gets_no_rule(master):
    assert not any("DNAT" in line for line in rules_for(place(master)))


NAMES = {"ddp": "10.0.0.1", "ddp-1": "10.0.0.2", "localhost": "10.0.0.9"}


def test_a_worker_finds_its_gang_and_what_the_machine_knows(tmp_path: Path):
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1\tlocalhost\n10.9.9.9\tstore\n")
    shared = hosts_file(worker(names=NAMES), machine="gpu-02", address="10.0.0.2", hosts=hosts)
    assert shared.decode() == (
        "10.0.0.1\tddp\n10.0.0.2\tddp-1\n10.0.0.2\tgpu-02\n127.0.0.1\tlocalhost\n10.9.9.9\tstore\n"
    )


def test_on_the_mesh_its_machines_name_is_its_own_address(tmp_path: Path):
    meshed = worker(names={"ddp": "100.64.1.2"}, mesh=place())
    found = hosts_file(meshed, machine="gpu-01", address="10.0.0.1", hosts=tmp_path / "none")
    assert found.decode() == "100.64.1.2\tddp\n100.64.1.2\tgpu-01\n127.0.0.1\tlocalhost\n::1\tlocalhost\n"
