"""RDMA ports from /sys/class/infiniband, as the kernel documents it in ABI/stable/sysfs-class-infiniband."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from agent.discovery.tree import Tree

CLASS = "sys/class/infiniband"
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?) Gb/sec")
_GID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}")
_STATE = re.compile(r"[0-9]+: ?([A-Za-z_]{1,31})")
_MOST_GIDS = 32
_NOWHERE = "0000:0000:0000:0000:0000:0000:0000:0000"
LINK_LAYERS: dict[str, Literal["InfiniBand", "Ethernet"]] = {
    "InfiniBand": "InfiniBand",
    "Ethernet": "Ethernet",
}


@dataclass(frozen=True)
class Port:
    """As the kernel tells it. Numbers that it doesn't tell are 0, texts empty."""

    device: str
    port: int
    link_layer: Literal["InfiniBand", "Ethernet"]
    state: str
    physical_state: str
    rate_gbps: float
    guid: str
    lid: int
    sm_lid: int
    subnet_prefix: str
    gids: tuple[str, ...]
    netdev: str | None
    numa_node: int | None
    downs: int | None
    """How often the link has gone down since the driver was loaded."""

    @property
    def name(self) -> str:
        return f"{self.device}:{self.port}"

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"


def ports_read(tree: Tree) -> tuple[Port, ...]:
    """Those of real devices: software on top of a network card (rxe, siw) has no device behind it."""
    devices = [name for name in tree.names(CLASS) if tree.exists(f"{CLASS}/{name}/device")]
    return tuple(port for device in devices for port in _device_ports(tree, device))


def _device_ports(tree: Tree, device: str) -> Iterator[Port]:
    for name in tree.names(f"{CLASS}/{device}/ports"):
        if name.isdecimal() and 1 <= int(name) <= 255:  # noqa: PLR2004 - a byte in every message of a subnet
            port = _port(tree, device, int(name))
            if port is not None:
                yield port


def _port(tree: Tree, device: str, number: int) -> Port | None:
    """None for a port whose files say nothing that can be understood: it is going, or isn't ready."""
    base = f"{CLASS}/{device}/ports/{number}"
    layer, state = LINK_LAYERS.get(tree.text(f"{base}/link_layer") or ""), _state(tree, f"{base}/state")
    if layer is None or not state:
        return None
    gids = tuple(_gids(tree, base))
    return Port(
        device=device,
        port=number,
        link_layer=layer,
        state=state,
        physical_state=_state(tree, f"{base}/phys_state"),
        rate_gbps=_rate(tree.text(f"{base}/rate")),
        guid=_port_guid(gids, tree.text(f"{CLASS}/{device}/node_guid")),
        lid=_lid(tree, f"{base}/lid"),
        sm_lid=_lid(tree, f"{base}/sm_lid"),
        subnet_prefix=gids[0][1][:19] if gids and layer == "InfiniBand" else "",
        gids=tuple(_gid_words(tree, base, *gid) for gid in gids)
        if layer == "Ethernet"
        else tuple(g for _, g in gids),
        netdev=_netdev(tree, device, base),
        numa_node=tree.numa_node(f"{CLASS}/{device}/device"),
        downs=tree.number(f"{base}/counters/link_downed"),
    )


def _state(tree: Tree, path: str) -> str:
    found = _STATE.fullmatch(tree.text(path) or "")
    return found[1] if found else ""


def _rate(text: str | None) -> float:
    """ "400 Gb/sec (4X NDR)" → 400; 0 for anything else."""
    found = _RATE.match(text or "")
    return min(float(found[1]), 1_000_000.0) if found else 0.0


def _lid(tree: Tree, path: str) -> int:
    number = tree.number(path) or 0
    return number if 0 <= number < 2**32 else 0


def _gids(tree: Tree, base: str) -> Iterator[tuple[int, str]]:
    """(Index, GID) of those that are set. The kernel lists every index that a table has room for."""
    indices = sorted(int(name) for name in tree.names(f"{base}/gids") if name.isdecimal())
    for index in indices[:_MOST_GIDS]:
        gid = tree.text(f"{base}/gids/{index}") or ""
        if _GID.fullmatch(gid) and gid != _NOWHERE and gid[20:] != _NOWHERE[20:]:
            yield index, gid


def _gid_words(tree: Tree, base: str, index: int, gid: str) -> str:
    kind = tree.text(f"{base}/gid_attrs/types/{index}")
    return f"{gid} ({kind[:20]})" if kind else gid


def _port_guid(gids: tuple[tuple[int, str], ...], node_guid: str | None) -> str:
    """The lower half of the first GID; the device's for a port without an address yet."""
    if gids:
        return f"0x{gids[0][1][20:].replace(':', '')}"
    guid = (node_guid or "").replace(":", "")
    return f"0x{guid}" if re.fullmatch(r"[0-9a-f]{16}", guid) else ""


def _netdev(tree: Tree, device: str, base: str) -> str | None:
    """Of the first GID that names one, else the only one of the device."""
    for index in range(_MOST_GIDS):
        if name := tree.text(f"{base}/gid_attrs/ndevs/{index}"):
            return name[:32]
    names = tree.names(f"{CLASS}/{device}/device/net")
    return names[0][:32] if len(names) == 1 else None
