"""WireGuard, interfaces, routes and packet filter of this machine, through `wg`, `ip` and `iptables`.

`wg` speaks to the kernel's WireGuard and to wireguard-go alike, which no library in Python does.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.files import file_replace
from agent.mesh.plan import HEADROOM, Interface, Names, interface_parse, jumps, rules_none
from wire.mesh import MeshOrder, interface_address

PROGRAMS = {"ip": "iproute2", "wg": "wireguard-tools", "iptables": "iptables"}
"""Program → the package it comes from."""
USERSPACE = "wireguard-go"
_SECONDS = 15.0
_LOCK_SECONDS = "5"
_DEFAULT_MTU = 1500
_IP_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


class MeshError(Exception):
    """Why the mesh can't be what it should be, a sentence."""


def run(*command: str, given: str | None = None) -> str:
    """Raises MeshError with what the program said."""
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise MeshError(f"`{command[0]}` didn't end within {_SECONDS:g} s.") from None
    except OSError as error:
        raise MeshError(f"`{command[0]}` can't be run: {error.strerror}.") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise MeshError(f"`{' '.join(command[:4])}`: {said}")
    return done.stdout


def missing() -> str:
    """What this machine lacks for a mesh, a sentence; empty when it has everything."""
    lacking = [f"{name} (package {package})" for name, package in PROGRAMS.items() if not shutil.which(name)]
    if lacking:
        return f"The mesh needs {', '.join(lacking)}. Install it and restart the agent."
    return "" if os.geteuid() == 0 else "The mesh needs an agent that runs as root."


def key_pair(path: Path) -> str:
    """The public key to the private one in `path`, which is made when there is none, for this user only."""
    if not path.exists():
        file_replace(path, run("wg", "genkey").encode())
    return run("wg", "pubkey", given=path.read_text()).strip()


@dataclass(frozen=True)
class System:
    names: Names
    key: Path
    port: int

    def interface(self) -> Interface | None:
        """None: it isn't there, or is no WireGuard (any more)."""
        try:
            return interface_parse(run("wg", "show", self.names.interface, "dump"))
        except MeshError:
            return None

    def interface_ensure(self, public_key: str) -> Interface:
        found = self.interface()
        if found is None:
            self._interface_add()
        if found is None or (found.public_key, found.port) != (public_key, self.port):
            settings = ("private-key", str(self.key), "listen-port", str(self.port))
            run("wg", "set", self.names.interface, *settings)
            found = self.interface()
        if found is None:
            raise MeshError(f"The interface {self.names.interface} has gone again.")
        return found

    def _interface_add(self) -> None:
        name = self.names.interface
        self._interface_delete()  # one that is left of a process that died
        try:
            run("ip", "link", "add", name, "type", "wireguard")
        except MeshError as error:
            if shutil.which(USERSPACE) is None:
                raise MeshError(
                    f"This kernel has no WireGuard ({error}). Load its module, or install {USERSPACE}."
                ) from error
            run(USERSPACE, name)  # it goes on in the background, also without this agent

    def _interface_delete(self) -> None:
        if self._link() is not None:
            run("ip", "link", "delete", self.names.interface)

    def _link(self) -> dict[str, Any] | None:
        for link in _json("-4", "address"):
            if link.get("ifname") == self.names.interface:
                return link
        return None

    def addresses_ensure(self, order: MeshOrder, mtu: int) -> None:
        """Its address, up, MTU, and the range's route."""
        name, address = self.names.interface, str(interface_address(order.subnet))
        link = self._link() or {}
        there = {found["local"] for found in link.get("addr_info", ())}
        if there != {address}:
            run("ip", "-4", "address", "flush", "dev", name)
            run("ip", "address", "add", f"{address}/32", "dev", name)
        if link.get("mtu") != mtu or "UP" not in link.get("flags", ()):
            run("ip", "link", "set", name, "mtu", str(mtu), "up")
        if (str(order.range), name) not in self.routes():
            run("ip", "route", "replace", str(order.range), "dev", name, "src", address)
        if _IP_FORWARD.read_text().strip() == "0":
            _IP_FORWARD.write_text("1\n")

    def routes(self) -> list[tuple[str, str]]:
        """(Target, interface) of IPv4."""
        return [(route["dst"], route.get("dev", "")) for route in _json("-4", "route")]

    def peers_set(self, words: list[str]) -> None:
        run("wg", "set", self.names.interface, *words)

    def rules_set(self, text: str) -> None:
        run("iptables-restore", "-w", _LOCK_SECONDS, "--noflush", given=text)
        for table, chain, target in self._jumps():
            if not self._leads(table, chain, target):
                run("iptables", "-w", _LOCK_SECONDS, "-t", table, "-I", chain, "1", "-j", target)

    def rules_stand(self) -> bool:
        """Whether our chains are still in use: Docker and firewalls rewrite theirs."""
        return all(self._leads(*jump) for jump in self._jumps())

    def _jumps(self) -> tuple[tuple[str, str, str], ...]:
        """Docker lets its own rules pass before others' see a packet, except those of DOCKER-USER."""
        return jumps(self.names, "DOCKER-USER" if _chain_exists("filter", "DOCKER-USER") else "FORWARD")

    def _leads(self, table: str, chain: str, target: str) -> bool:
        return _holds("iptables", "-w", _LOCK_SECONDS, "-t", table, "-C", chain, "-j", target)

    def hairpins_ensure(self) -> None:
        """A leader finds itself at its machine's address: where the kernel filters bridges too (br_netfilter), as with
        Docker, such a packet leaves through the port of the bridge through which it came, which must be allowed to it.
        """
        try:
            ports = _json("-d", "link", "show", "master", self.names.bridge)
        except MeshError:
            return  # no bridge, so no worker yet
        for port in ports:
            if not port.get("linkinfo", {}).get("info_slave_data", {}).get("hairpin", True):
                run("ip", "link", "set", port["ifname"], "type", "bridge_slave", "hairpin", "on")

    def remove(self) -> None:
        """Everything that `interface_ensure`, `addresses_ensure` and `rules_set` have made."""
        self._interface_delete()
        for table, chain, target in {*jumps(self.names, "FORWARD"), *self._jumps()}:
            while self._leads(table, chain, target):
                run("iptables", "-w", _LOCK_SECONDS, "-t", table, "-D", chain, "-j", target)
        run("iptables-restore", "-w", _LOCK_SECONDS, "--noflush", given=rules_none(self.names))
        for table, _, chain in jumps(self.names, "FORWARD"):
            run("iptables", "-w", _LOCK_SECONDS, "-t", table, "-X", chain)

    def left(self) -> bool:
        """Whether anything of ours is there."""
        return self._link() is not None or _chain_exists("filter", self.names.chain("FWD"))


def mtu_of(address: str, *, links: Callable[[], list[dict[str, Any]]] = lambda: _json("address")) -> int:
    """What a packet on the mesh may have, by the interface with the machine's address."""
    for link in links():
        if any(found.get("local") == address for found in link.get("addr_info", ())):
            return min(int(link["mtu"]), 65535) - HEADROOM
    return _DEFAULT_MTU - HEADROOM


def _json(*words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("ip", "-j", *words) or "[]")
    return found


def _chain_exists(table: str, chain: str) -> bool:
    return _holds("iptables", "-w", _LOCK_SECONDS, "-t", table, "-n", "-L", chain)


def _holds(*command: str) -> bool:
    try:
        run(*command)
    except MeshError:
        return False
    return True
