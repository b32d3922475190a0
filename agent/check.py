"""`check`: what this machine has and lacks, and the command that mends it."""

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import psutil

from agent.client import Console, ConsoleError
from agent.config import CONFIG_NAME, Config, ConfigError, config_read
from agent.containers.checks import container_checks
from agent.discovery.answers import NvmlAnswer
from agent.discovery.checks import Check, Facts, Verdict, hardware_checks
from agent.discovery.gpu_ward import problem_words
from agent.discovery.nvml_process import ask_once
from agent.discovery.packages import install
from agent.discovery.ports import ports_read
from agent.discovery.sources import driver_loaded, nvidia_devices
from agent.discovery.tree import Tree
from agent.ports import PortTakenError, port_hold
from wire.environment import RENDEZVOUS_PORTS

_OLDEST_BUBBLEWRAP = (0, 5)  # --clearenv, --perms
_OLDEST_KERNEL = (5, 4)  # pidfd_open
_OLDEST_PYTHON = (3, 11)
_LEAST_MEMORY = 2 << 30
_LEAST_SHM_SHARE = 0.25
_MOST_SKEW = 2.0
_SHM = "/dev/shm"  # noqa: S108 - it is looked at, nothing is written
_PROGRAM_SECONDS = 20
_COLUMNS = ("what", "", "found", "to do")


def check(state: Path) -> list[Check]:
    """Everything, the console included."""
    return [*machine_checks(facts_now(), _joined(state)), _rendezvous_port(), *_console(state)]


def _joined(state: Path) -> Config | None:
    try:
        return config_read(state)
    except ConfigError:  # `_console` says why
        return None


def machine_checks(facts: Facts, config: Config | None = None) -> list[Check]:
    """Those of the machine alone; a repetition finds the same words as long as the machine is the same.

    `config`: of the agent that has joined, which decides what of it is needed.
    """
    return [
        _bubblewrap(),
        _sandbox(),
        _python(),
        _kernel(),
        _memory(),
        _shared_memory(),
        _locked_memory(),
        *hardware_checks(facts),
        *container_checks(facts, config),
    ]


def facts_now(tree: Tree | None = None) -> Facts:
    """Asks everything anew; a driver that doesn't answer costs a minute."""
    tree = tree or Tree()
    devices = nvidia_devices(tree)
    facts = Facts(tree=tree, ports=ports_read(tree), nvidia_devices=devices)
    if not devices and not driver_loaded(tree):
        return facts
    said = ask_once()
    if isinstance(said, NvmlAnswer):
        return replace(facts, answer=said)
    return replace(facts, problem=problem_words(said))


def checks_table(checks: list[Check]) -> str:
    rows = [_COLUMNS, *((c.what, c.verdict, c.found, c.fix) for c in checks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def checks_json(checks: list[Check]) -> str:
    return json.dumps({"checks": [asdict(one) for one in checks]}, indent=2)


def _bubblewrap() -> Check:
    program = shutil.which("bwrap")
    if program is None:
        return Check("bubblewrap", "missing", "not installed", install("bubblewrap"))
    said = _said(program, "--version")
    if _version(said.rpartition(" ")[2]) < _OLDEST_BUBBLEWRAP:
        return Check("bubblewrap", "missing", f"{said} is older than 0.5", install("bubblewrap"))
    return Check("bubblewrap", "ok", said)


def _said(*command: str) -> str:
    """What a program prints; empty when it can't be run, or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PROGRAM_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _sandbox() -> Check:
    """Make one: distributions switch the namespaces that it needs off in several ways."""
    program = shutil.which("bwrap")
    if program is None:
        return Check("sandbox", "missing", "not tried without bubblewrap")
    isolation = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL"]
    command = [program, *isolation, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PROGRAM_SECONDS)
    except subprocess.TimeoutExpired:
        return Check("sandbox", "missing", f"not made within {_PROGRAM_SECONDS} s", "dmesg")
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
        return Check("python", "missing", f"{found} is older than 3.11", install("python3.11"))
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


def _shared_memory() -> Check:
    """NCCL and data loaders share memory there; sandboxes get one of their own, out of the same memory."""
    path = Path(_SHM)
    if not path.is_dir() or not path.is_mount():
        return Check(_SHM, "missing", "not mounted", f"mount -t tmpfs -o nosuid,nodev tmpfs {_SHM}")
    size = psutil.disk_usage(str(path)).total
    found = f"{size / (1 << 30):.1f} GiB"
    if size < _LEAST_SHM_SHARE * psutil.virtual_memory().total:
        return Check(_SHM, "warning", f"{found} is little", f"mount -o remount,size=50% {_SHM}")
    return Check(_SHM, "ok", found)


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
        verdict: Verdict = "warning" if missing else "wrong"
        found = "no" if missing else str(error)
        yield Check("joined", verdict, found, "astraeus-agent join --server URL --token TOKEN")
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
    yield _clock(skew)


def _clock(skew: float) -> Check:
    """`skew`: seconds that this machine is ahead."""
    if abs(skew) <= _MOST_SKEW:
        return Check("clock", "ok", "agrees with the console's")
    found = f"{abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
    return Check("clock", "warning", found, "timedatectl set-ntp true")


def _version(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for part in text.replace("-", ".").split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
