"""Network namespaces as machines: each has its own loopback, and a cable to a switch when it is on a `Site`."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

_SECONDS = 30
_END_SECONDS = 5
_NUMBERS = count(1)
_SITES = 250


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout


@dataclass
class Space:
    """A network namespace. `inside` makes of a command one that runs in it.

    `ip netns exec` would hide the cgroups from what it starts, which nsenter doesn't.
    """

    name: str = field(default_factory=lambda: f"astraeus-{os.getpid()}-{next(_NUMBERS)}")
    address: str = "127.0.0.1"
    cable: str = ""
    """The host's end of its cable to the site's switch."""

    def open(self) -> "Space":
        run("ip", "netns", "add", self.name)
        run("ip", "-n", self.name, "link", "set", "lo", "up")
        return self

    def inside(self, *command: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.name}", *command]

    def call(self, *command: str) -> str:
        return run(*self.inside(*command))

    def plug(self, *, connected: bool) -> None:
        """Pull the cable, or put it in again."""
        run("ip", "link", "set", self.cable, "up" if connected else "down")

    def close(self) -> None:
        """With all that still runs in it: wireguard-go outlives its agent on purpose."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._end(number)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, timeout=_SECONDS, check=False)

    def _end(self, number: signal.Signals) -> None:
        """Returns when nothing runs in it any more, or after a while."""
        deadline = time.monotonic() + _END_SECONDS
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        while self._pids() and time.monotonic() < deadline:
            time.sleep(0.05)

    def _pids(self) -> list[int]:
        """None of a namespace that was never made."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.name], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        return [int(pid) for pid in found.stdout.split()]


@dataclass
class Site:
    """Machines at one switch, which is a bridge of the host: it has the address `.1`, they have `.11` and on.

    `number` chooses the network 10.213.<number>.0/24; `open` finds one that no other site of this host has.
    """

    number: int = 0
    spaces: list[Space] = field(default_factory=list)

    @property
    def switch(self) -> str:
        return f"astr{self.number}"

    @property
    def address(self) -> str:
        """The host's, where a console may listen."""
        return f"10.213.{self.number}.1"

    def open(self) -> "Site":
        self._take_number()
        run("ip", "address", "add", f"{self.address}/24", "dev", self.switch)
        run("ip", "link", "set", self.switch, "up")
        return self

    def _take_number(self) -> None:
        """Of two that make the same bridge the kernel lets one."""
        for attempt in range(_SITES):
            self.number = (os.getpid() + attempt) % _SITES
            made = subprocess.run(
                ["ip", "link", "add", self.switch, "type", "bridge"],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            if made.returncode == 0:
                return
        raise AssertionError(f"no number for a site is free: {made.stderr.strip()}")

    def add(self) -> Space:
        """One more machine, with the default route to the host."""
        position = len(self.spaces)
        space = Space(address=f"10.213.{self.number}.{11 + position}").open()
        self.spaces.append(space)
        space.cable, theirs = f"{self.switch}c{position}", f"{self.switch}m{position}"
        run("ip", "link", "add", space.cable, "type", "veth", "peer", "name", theirs)
        run("ip", "link", "set", space.cable, "master", self.switch, "up")
        run("ip", "link", "set", theirs, "netns", space.name)
        for command in _eth0(theirs, f"{space.address}/24", self.address):
            run("ip", "-n", space.name, *command)
        return space

    def close(self) -> None:
        for space in self.spaces:
            # At once: the kernel takes its time with a deleted namespace, and the next site has the same names.
            subprocess.run(
                ["ip", "link", "del", space.cable], capture_output=True, timeout=_SECONDS, check=False
            )
            space.close()
        subprocess.run(["ip", "link", "del", self.switch], capture_output=True, timeout=_SECONDS, check=False)


def _eth0(name: str, address: str, gateway: str) -> Sequence[Sequence[str]]:
    return (
        ("link", "set", name, "name", "eth0"),
        ("address", "add", address, "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("route", "add", "default", "via", gateway),
    )
