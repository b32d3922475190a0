"""The mesh: which addresses machines and workers have on it, and what agents and the console say about it.

A cluster has a range; a machine has the /24 of it that its number names. Of that the first address is the machine's own
on its bridge, the last one its own on the WireGuard interface, and those between are its workers'.
"""

import base64
import binascii
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, ip_address
from typing import Annotated

from pydantic import AfterValidator, Field

from wire.message import Message, Text

SUBNET_BITS = 24
DEFAULT_RANGE = "100.64.0.0/10"
"""Set apart for networks between providers and their customers (RFC 6598): private ranges are where machines live."""
LISTEN_PORT = 51820
UNREACHABLE = "none"
"""In place of an endpoint: no other machine can reach this one; it reaches them."""
_KEY_BYTES = 32
_KEY_LENGTH = 44
_MAX_PORT = 65535


def subnet_of(mesh_range: str, number: int) -> IPv4Network:
    """The subnet of the machine with this number. Raises ValueError for one beyond the range."""
    whole = IPv4Network(mesh_range)
    if not 0 <= number < subnets_in(mesh_range):
        raise ValueError(f"{mesh_range} has no subnet {number}")
    step = 1 << (IPv4Address(0).max_prefixlen - SUBNET_BITS)
    return IPv4Network((int(whole.network_address) + number * step, SUBNET_BITS))


def subnets_in(mesh_range: str) -> int:
    """How many machines the range has room for."""
    bits = IPv4Network(mesh_range).prefixlen
    return 1 << (SUBNET_BITS - bits) if bits <= SUBNET_BITS else 0


def bridge_address(subnet: IPv4Network) -> IPv4Address:
    return subnet[1]


def interface_address(subnet: IPv4Network) -> IPv4Address:
    return subnet[-2]


def worker_addresses(subnet: IPv4Network) -> Iterator[str]:
    return (str(subnet[position]) for position in range(2, subnet.num_addresses - 2))


def _key(text: str) -> str:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _KEY_BYTES or len(text) != _KEY_LENGTH:
        raise ValueError("not a WireGuard key")
    return text


def check_endpoint(text: str) -> str:
    """An address and a port, "10.0.0.7:51820" or "[fd00::7]:51820", or "": it is reached by none, and reaches others.

    No name: every agent would have to ask for it, and go on where its answer leads. Raises ValueError.
    """
    host, _, port = text.rpartition(":")
    if text and not (port.isascii() and port.isdecimal() and 1 <= int(port) <= _MAX_PORT):
        raise ValueError("an endpoint is an address and a port, such as 10.0.0.7:51820")
    if text:
        bare = host.removeprefix("[").removesuffix("]")
        if (ip_address(bare).version == 6) != host.startswith("["):  # noqa: PLR2004 - IPv6
            raise ValueError("an IPv6 address of an endpoint stands in brackets")
    return text


def endpoint_of(address: str, port: int) -> str:
    """Raises ValueError for what is no address."""
    bare = address.partition("%")[0]
    return check_endpoint(f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}")


PublicKey = Annotated[str, Field(max_length=_KEY_LENGTH), AfterValidator(_key)]
Endpoint = Annotated[str, Field(max_length=64), AfterValidator(check_endpoint)]


class MeshReport(Message):
    """A machine that can be on the mesh: its agent has made a key of its own, which never leaves it."""

    public_key: PublicKey
    endpoint: Endpoint = ""
    """Where other machines reach it; "" where none does."""
    flaw: Text = Field(default="", max_length=300)
    """Why it can't be used as it is, a sentence."""


class MeshPeer(Message):
    machine: str
    public_key: PublicKey
    endpoint: Endpoint = ""
    subnet: IPv4Network


class MeshOrder(Message):
    """What a machine's mesh should look like."""

    range: IPv4Network
    subnet: IPv4Network
    """Of this machine."""
    peers: tuple[MeshPeer, ...] = ()
    """The machines with which it shares a gang on the mesh, and no others: an order stays small however large the
    cluster is, and a machine that joins or leaves concerns nobody who has no worker beside one of its own."""


class WorkerMesh(Message):
    """A worker's place on the mesh."""

    address: IPv4Address
    members: tuple[IPv4Address, ...]
    """Of all workers of its gang, its own included: they alone reach it, and it them."""
    leader: IPv4Address
    master_address: str
    """Of the leader's machine. From this worker, `master_port` there is the leader's."""
    master_port: int = Field(ge=1, le=_MAX_PORT)
