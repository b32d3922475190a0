"""Which subnet manager a port belongs to: by its port GUID, which `sminfo` asks for, else a guess.

A guess is (subnet prefix, LID of the subnet manager). Separate fabrics often share both, hence the GUID.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agent.discovery.ports import Port

AskSm = Callable[[Port], str | None]
"""The port GUID of a port's subnet manager, "0x…"; None when nobody answers."""

AGAIN_SECONDS = 300.0
"""How long an answer counts while the port's addresses stay: a hand-over nearly always changes the manager's LID."""
RETRY_SECONDS = 60.0
_DEADLINE_SECONDS = 5.0
_GUID = re.compile(r"sm guid (0x[0-9a-f]{1,16})\b", re.IGNORECASE)
_NOBODY = 0


def sminfo(port: Port) -> str | None:
    """By infiniband-diags' program. It needs /dev/infiniband/umad*, so mostly root."""
    program = sminfo_program()
    if program is None:
        return None
    command = [program, "-C", port.device, "-P", str(port.port)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return guid_of(done.stdout)


def sminfo_program() -> str | None:
    """Agents as services often lack the directories of administrators' programs."""
    return shutil.which("sminfo") or shutil.which("sminfo", path="/usr/sbin:/sbin")


def guid_of(said: str) -> str | None:
    """From "sminfo: sm lid 1 sm guid 0x248a0703002e6a6a, activity count 4 priority 14 state 3 SMINFO_MASTER"."""
    found = _GUID.search(said)
    number = int(found[1], 16) if found else _NOBODY
    return f"0x{number:016x}" if number != _NOBODY else None


@dataclass(frozen=True)
class Manager:
    key: str
    guessed: bool


@dataclass(frozen=True)
class _Asked:
    addresses: tuple[str, int, int]
    guid: str | None
    at: float


class SubnetManagers:
    """What is known of each port's manager. A GUID stays known while the port's addresses stay, even if later
    questions aren't answered."""

    def __init__(self, ask: AskSm) -> None:
        self._ask = ask
        self._asked: dict[str, _Asked] = {}

    def of(self, ports: Iterable[Port], now: float) -> dict[str, Manager]:
        """By the port's name; without those that have no subnet manager. `now`: seconds of a monotonic clock."""
        there = [port for port in ports if port.link_layer == "InfiniBand" and port.sm_lid]
        names = {port.name for port in there}
        self._asked = {name: asked for name, asked in self._asked.items() if name in names}
        self._ask_all([port for port in there if self._is_due(port, now)], now)
        return {port.name: self._manager(port) for port in there}

    def _is_due(self, port: Port, now: float) -> bool:
        known = self._asked.get(port.name)
        if known is None or known.addresses != _addresses(port):
            return True
        return now - known.at >= (AGAIN_SECONDS if known.guid else RETRY_SECONDS)

    def _ask_all(self, ports: list[Port], now: float) -> None:
        """All at once: managers that don't answer cost seconds each."""
        # A port that is down can't ask, but what was known of it stays.
        active = [port for port in ports if port.active]
        guids: dict[str, str | None] = {}
        if active:
            with ThreadPoolExecutor(len(active)) as threads:
                answers = threads.map(self._ask, active)
                guids = dict(zip((port.name for port in active), answers, strict=True))
        for port in ports:
            guid = guids.get(port.name) or self._known_guid(port)
            self._asked[port.name] = _Asked(_addresses(port), guid, now)

    def _known_guid(self, port: Port) -> str | None:
        known = self._asked.get(port.name)
        return known.guid if known is not None and known.addresses == _addresses(port) else None

    def _manager(self, port: Port) -> Manager:
        guid = self._known_guid(port)
        if guid is not None:
            return Manager(guid, guessed=False)
        return Manager(f"{port.subnet_prefix or 'unknown prefix'}/lid {port.sm_lid}", guessed=True)


def _addresses(port: Port) -> tuple[str, int, int]:
    return port.subnet_prefix, port.lid, port.sm_lid
