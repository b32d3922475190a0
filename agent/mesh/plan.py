"""What the mesh should look like on this machine, and what is missing of it. Pure: data in, data out."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from wire.mesh import MeshOrder, MeshPeer, WorkerMesh

KEEPALIVE_SECONDS = 25
"""Machines behind a NAT stay reachable by it: routers forget a mapping after 30 s and more."""
ALIVE_SECONDS = 180
"""WireGuard gives up a session without a new handshake after so long."""
HEADROOM = 80
"""Bytes that WireGuard adds to a packet, over IPv6: the larger one."""


@dataclass(frozen=True)
class Names:
    """Of what belongs to this machine's mesh: made of its key, so that no two agents of one host or kernel clash."""

    interface: str
    bridge: str
    chains: str

    def chain(self, what: str) -> str:
        return f"{self.chains}-{what}"


def names_of(public_key: str) -> Names:
    mark = hashlib.sha256(public_key.encode()).hexdigest()[:8]
    return Names(interface=f"wg-{mark}", bridge=f"astr-{mark}", chains=f"ASTR-{mark}")


@dataclass(frozen=True)
class Seen:
    """A peer as WireGuard has it."""

    endpoint: str
    allowed: frozenset[str]
    handshake: int
    """Seconds since 1970; 0: none yet."""


@dataclass(frozen=True)
class Interface:
    public_key: str
    port: int
    peers: Mapping[str, Seen]


def interface_parse(dump: str) -> Interface:
    """Of `wg show NAME dump`."""
    own, *peers = [line.split("\t") for line in dump.splitlines()]
    return Interface(
        public_key=own[1],
        port=int(own[2]),
        peers={
            key: Seen("" if endpoint == "(none)" else endpoint, _allowed(allowed), int(handshake))
            for key, _, endpoint, allowed, handshake, *_ in peers
        },
    )


def _allowed(text: str) -> frozenset[str]:
    return frozenset() if text == "(none)" else frozenset(text.split(","))


def peers_change(wanted: Iterable[MeshPeer], seen: Mapping[str, Seen], now: float) -> list[str]:
    """Arguments of `wg set NAME` that make of the peers that are there those that are wanted; empty: nothing to do.

    A peer that is right isn't named, so that its session goes on. One that answers is where it is: an address that
    changed behind a NAT is newer than the one that its agent reported.
    """
    by_key = {peer.public_key: peer for peer in wanted}
    words: list[str] = []
    for key in sorted(seen.keys() - by_key.keys()):
        words += ["peer", key, "remove"]
    for key, peer in sorted(by_key.items()):
        settings = _settings(peer, seen.get(key), now)
        if settings:
            words += ["peer", key, *settings]
    return words


def _settings(peer: MeshPeer, seen: Seen | None, now: float) -> list[str]:
    subnet = str(peer.subnet)
    words: list[str] = []
    if seen is None:
        words += ["persistent-keepalive", str(KEEPALIVE_SECONDS)]
    if seen is None or seen.allowed != {subnet}:
        words += ["allowed-ips", subnet]
    silent = seen is None or now - seen.handshake > ALIVE_SECONDS
    if peer.endpoint and silent and (seen is None or seen.endpoint != peer.endpoint):
        words += ["endpoint", peer.endpoint]
    return words


def overlap(whole: IPv4Network, routes: Iterable[tuple[str, str]], own: Iterable[str]) -> str:
    """The route that the mesh's range would cut, "10.0.0.0/8 on eth0"; empty without. `routes`: (target, interface)."""
    ours = set(own)
    for target, interface in routes:
        try:
            network = IPv4Network(target)
        except ValueError:
            continue  # "default"
        if interface not in ours and network.prefixlen and network.overlaps(whole):
            return f"{network} on {interface}"
    return ""


def rules(names: Names, order: MeshOrder, workers: Iterable[WorkerMesh]) -> str:
    """Input of `iptables-restore --noflush`: all of our chains anew, each table at once.

    * From a worker, its leader's port at the address of the leader's machine is the leader's on the mesh. The port is
      not open on that machine's other networks: torch's store asks nobody who they are.
    * Only a gang's own members reach a worker. To the rest of the world a worker may connect, as the machine.
    * Packets between workers keep their addresses, whatever else on this machine rewrites them.
    """
    pre, post, forward, incoming = (names.chain(what) for what in ("PRE", "POST", "FWD", "IN"))
    subnet, whole, interface = order.subnet, order.range, names.interface
    gangs = sorted(workers, key=lambda worker: worker.address)
    lines = [
        "*nat",
        f":{pre} - [0:0]",
        f":{post} - [0:0]",
        *(f"-A {pre} {_to_leader(worker)}" for worker in gangs if _is_ipv4(worker.master_address)),
        *(f"-A {post} -s {w.address} -d {w.address} -j MASQUERADE" for w in gangs if w.address == w.leader),
        f"-A {post} -s {whole} -d {whole} -j ACCEPT",
        f"-A {post} -s {subnet} ! -d {whole} -j MASQUERADE",
        "COMMIT",
        "*filter",
        f":{forward} - [0:0]",
        f":{incoming} - [0:0]",
        f"-A {forward} -d {subnet} -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        f"-A {forward} -s {subnet} -d {whole} -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        *(f"-A {forward} {way}" for worker in gangs for way in _ways(worker)),
        f"-A {forward} -d {subnet} -j DROP",
        f"-A {forward} -s {subnet} -d {whole} -j DROP",
        f"-A {incoming} -i {interface} -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        f"-A {incoming} -i {interface} -p icmp -j ACCEPT",
        f"-A {incoming} -i {interface} -j DROP",
        "COMMIT",
    ]
    return "\n".join(lines) + "\n"


def rules_none(names: Names) -> str:
    """Empty chains, to be deleted then."""
    nat, filters = (names.chain("PRE"), names.chain("POST")), (names.chain("FWD"), names.chain("IN"))
    return "".join(
        f"*{table}\n" + "".join(f":{chain} - [0:0]\n" for chain in chains) + "COMMIT\n"
        for table, chains in (("nat", nat), ("filter", filters))
    )


def jumps(names: Names, forward: str) -> tuple[tuple[str, str, str], ...]:
    """(Table, chain, target): what leads to our chains. `forward`: the chain through which forwarded packets go."""
    return (
        ("nat", "PREROUTING", names.chain("PRE")),
        ("nat", "POSTROUTING", names.chain("POST")),
        ("filter", forward, names.chain("FWD")),
        ("filter", "INPUT", names.chain("IN")),
    )


def _to_leader(worker: WorkerMesh) -> str:
    wanted = f"-s {worker.address} -d {worker.master_address} -p tcp --dport {worker.master_port}"
    return f"{wanted} -j DNAT --to-destination {worker.leader}"


def _ways(worker: WorkerMesh) -> Iterable[str]:
    for member in worker.members:
        yield f"-s {member} -d {worker.address} -j ACCEPT"
        if member != worker.address:
            yield f"-s {worker.address} -d {member} -j ACCEPT"


def _is_ipv4(text: str) -> bool:
    """An agent may have been given a name as its address, or one of IPv6: neither can stand in a rule."""
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True
