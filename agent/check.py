"""`check`: what this machine has and lacks for the runtime bubblewrap, and the command that mends it."""

import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from agent.client import Console, ConsoleError
from agent.config import CONFIG_NAME, ConfigError, config_read
from agent.ports import PortTakenError, port_hold
from wire.environment import RENDEZVOUS_PORTS

Verdict = Literal["ok", "warning", "missing"]

_OLDEST_BUBBLEWRAP = (0, 5)  # --clearenv, --perms
_OLDEST_KERNEL = (5, 4)  # pidfd_open
_OLDEST_PYTHON = (3, 11)
_LEAST_MEMORY = 2 << 30
_MOST_SKEW = 2.0
_COLUMNS = ("what", "", "found", "to do")


@dataclass(frozen=True)
class Check:
    """One line of the table; `fix` is a command or a sentence, empty when nothing is to be done."""

    what: str
    verdict: Verdict
    found: str
    fix: str = ""


def check(state: Path) -> list[Check]:
    return [
        _bubblewrap(),
        _sandbox(),
        _python(),
        _kernel(),
        _memory(),
        _locked_memory(),
        _rendezvous_port(),
        *_console(state),
    ]


def checks_table(checks: list[Check]) -> str:
    rows = [_COLUMNS, *((c.what, c.verdict, c.found, c.fix) for c in checks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _install(package: str) -> str:
    for program, command in (
        ("apt-get", "apt-get install"),
        ("dnf", "dnf install"),
        ("zypper", "zypper install"),
    ):
        if shutil.which(program):
            return f"{command} {package}"
    return f"install the package {package}"


def _bubblewrap() -> Check:
    program = shutil.which("bwrap")
    if program is None:
        return Check("bubblewrap", "missing", "not installed", _install("bubblewrap"))
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    if _version(said.rpartition(" ")[2]) < _OLDEST_BUBBLEWRAP:
        return Check("bubblewrap", "missing", f"{said} is older than 0.5", _install("bubblewrap"))
    return Check("bubblewrap", "ok", said)


def _sandbox() -> Check:
    """Make one: distributions switch the namespaces that it needs off in several ways."""
    program = shutil.which("bwrap")
    if program is None:
        return Check("sandbox", "missing", "not tried without bubblewrap")
    isolation = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL"]
    command = [program, *isolation, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return Check("sandbox", "ok", "can be made")
    return Check("sandbox", "missing", done.stderr.strip() or "can't be made", _namespaces_fix())


def _namespaces_fix() -> str:
    switches = {
        "kernel/unprivileged_userns_clone": ("0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        "kernel/apparmor_restrict_unprivileged_userns": (
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        "user/max_user_namespaces": ("0", "sysctl -w user.max_user_namespaces=15000"),
    }
    for name, (off, command) in switches.items():
        path = Path("/proc/sys") / name
        if path.exists() and path.read_text().strip() == off:
            return command
    return "run the agent as root"


def _python() -> Check:
    found = platform.python_version()
    if sys.version_info < _OLDEST_PYTHON:
        return Check("python", "missing", f"{found} is older than 3.11", _install("python3.11"))
    return Check("python", "ok", f"{found} in {Path(sys.executable).parent}")


def _kernel() -> Check:
    found = platform.release()
    if _version(found) < _OLDEST_KERNEL:
        return Check("kernel", "missing", f"{found} is older than 5.4", "upgrade the kernel")
    return Check("kernel", "ok", found)


def _memory() -> Check:
    total = psutil.virtual_memory().total
    found = f"{total / (1 << 30):.1f} GiB"
    if total < _LEAST_MEMORY:
        return Check("memory", "warning", found, "a worker takes 2 GiB if its run doesn't say otherwise")
    return Check("memory", "ok", found)


def _locked_memory() -> Check:
    _, most = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if most == resource.RLIM_INFINITY or os.geteuid() == 0:
        return Check("locked memory", "ok", "unlimited")
    fix = "LimitMEMLOCK=infinity in the agent's systemd unit (needed for RDMA and pinned buffers)"
    return Check("locked memory", "warning", f"at most {most / (1 << 20):.0f} MiB", fix)


def _rendezvous_port() -> Check:
    first = RENDEZVOUS_PORTS[0]
    try:
        port_hold(first).close()
    except PortTakenError:
        fix = "nothing: runs take the next free port"
        return Check("rendezvous port", "warning", f"{first} is in use", fix)
    return Check("rendezvous port", "ok", f"{first} is free")


def _console(state: Path) -> Iterator[Check]:
    try:
        config = config_read(state)
    except ConfigError as error:
        missing = not (state / CONFIG_NAME).exists()
        verdict: Verdict = "warning" if missing else "missing"
        yield Check(
            "joined",
            verdict,
            "no" if missing else str(error),
            "astraeus-agent join --server URL --token TOKEN",
        )
        return
    yield Check("joined", "ok", f"{config.name} at {config.server}")
    console = Console(config.server)
    try:
        skew = time.time() - console.clock()
    except ConsoleError as error:
        yield Check("console", "missing", str(error), "check the URL, the network and the console")
        return
    finally:
        console.close()
    yield Check("console", "ok", "reached")
    if abs(skew) > _MOST_SKEW:
        yield Check(
            "clock",
            "warning",
            f"{abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}",
            "timedatectl set-ntp true",
        )
    else:
        yield Check("clock", "ok", "agrees with the console's")


def _version(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for part in text.replace("-", ".").split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
