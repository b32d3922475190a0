"""What `check` says of a machine on which workers run as containers: the engine, GPUs in it, and what the mesh needs.

Nothing here loads the Docker SDK: the agent of every machine looks at it.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.config import DOCKER_SOCKET, Config
from agent.discovery.checks import Check, Facts, Verdict
from agent.discovery.host import toolkit_version
from agent.discovery.packages import install
from agent.discovery.tree import Tree
from agent.mesh.system import PROGRAMS, USERSPACE
from agent.supervision.docker_engine import EngineError, engine_ask

_OLDEST_API = (1, 41)
"""Docker 20.10: what is asked for in a container's request came by then."""
_ENGINE, _TOOLKIT, _WIREGUARD, _TOOLS = "Docker engine", "container toolkit", "WireGuard", "mesh tools"
_WITHOUT = "gangs of containers share the machines' networks"
_WG = "wg"

Which = Callable[[str], str | None]
Ask = Callable[[str], Mapping[str, Any]]
"""What the engine at a socket answers to `GET /version`; raises as `engine_ask`."""


def _version(socket: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = engine_ask(socket, "GET", "/version")
    return found


@dataclass(frozen=True)
class Surroundings:
    """What is looked at beside the tree of files."""

    which: Which = shutil.which
    ask: Ask = _version


def container_checks(
    facts: Facts, config: Config | None, around: Surroundings | None = None
) -> Iterator[Check]:
    """Nothing on a machine that neither has an engine nor is meant to have one. `config`: None before it has joined."""
    around = around or Surroundings()
    needed = config is not None and config.runtime == "docker"
    if not needed and not _installed(around):
        return
    yield _engine(config.docker_socket if config else DOCKER_SOCKET, around, needed=needed)
    if facts.gpus:
        yield _toolkit(toolkit_version(facts.tree), needed=needed)
    yield _tools(around)
    yield _wireguard(facts.tree, around)


def _installed(around: Surroundings) -> bool:
    return any(around.which(program) for program in ("dockerd", "docker"))


def _engine(socket: str, around: Surroundings, *, needed: bool) -> Check:
    lacks: Verdict = "missing" if needed else "warning"
    try:
        said = around.ask(socket)
    except (EngineError, OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        fix = "systemctl enable --now docker" if _installed(around) else _engine_install()
        return Check(_ENGINE, lacks, f"doesn't answer at {socket}: {cause}", fix)
    version = str(said.get("Version", "unknown"))
    if _numbers(str(said.get("ApiVersion", ""))) < _OLDEST_API:
        return Check(_ENGINE, lacks, f"{version} is older than 20.10", _engine_install())
    return Check(_ENGINE, "ok", f"{version} at {socket}")


def _engine_install() -> str:
    return install("docker", apt="docker.io")


def _toolkit(version: str, *, needed: bool) -> Check:
    if version:
        return Check(_TOOLKIT, "ok", version)
    lacks: Verdict = "missing" if needed else "warning"
    found = "the NVIDIA Container Toolkit isn't installed: containers get no GPUs"
    return Check(_TOOLKIT, lacks, found, install("nvidia-container-toolkit"))


def _tools(around: Surroundings) -> Check:
    lacking = [program for program in PROGRAMS if program != _WG and not around.which(program)]
    if not lacking:
        return Check(_TOOLS, "ok", "ip and iptables are installed")
    packages = " ".join(PROGRAMS[program] for program in lacking)
    found = f"without {' and '.join(lacking)}: {_WITHOUT}"
    return Check(_TOOLS, "warning", found, install(packages))


def _wireguard(tree: Tree, around: Surroundings) -> Check:
    if not around.which(_WG):
        return Check(_WIREGUARD, "warning", f"without {_WG}: {_WITHOUT}", install(PROGRAMS[_WG]))
    if _in_kernel(tree):
        return Check(_WIREGUARD, "ok", "by the kernel")
    if not around.which(USERSPACE):
        return Check(_WIREGUARD, "warning", f"not in this kernel: {_WITHOUT}", install(USERSPACE))
    if not tree.exists("dev/net/tun"):
        return Check(_WIREGUARD, "warning", f"{USERSPACE} has no /dev/net/tun: {_WITHOUT}", "modprobe tun")
    return Check(_WIREGUARD, "ok", f"by {USERSPACE}")


def _in_kernel(tree: Tree) -> bool:
    """It is loaded, or is by the kernel itself as soon as an interface is made."""
    release = tree.text("proc/sys/kernel/osrelease") or ""
    modules = tree.names(f"lib/modules/{release}/kernel/drivers/net/wireguard") if release else []
    return tree.exists("sys/module/wireguard") or any(name.startswith("wireguard.ko") for name in modules)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
