"""This machine's Docker engine: talking to it, and what it can give."""

import os
import socket
import struct
from pathlib import Path

import docker
from docker.errors import DockerException

from agent.config import Config
from agent.containers.settings import UNLIMITED, Limits
from agent.runtime import NotPrepared

_ANSWER_SECONDS = 300
"""Of silence, after which a pull or another request is given up."""
_CAP_SYS_RESOURCE = 24
_MOST_FILES = 1 << 20
_LIMITS = {"Max locked memory": "memlock", "Max open files": "nofile"}


def engine_client(path: str, machine: str) -> docker.DockerClient:
    """To be closed by the caller. Raises NotPrepared where no engine answers."""
    try:
        _knock(path)
        return docker.DockerClient(base_url=f"unix://{path}", timeout=_ANSWER_SECONDS)
    except (DockerException, OSError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise NotPrepared(
            f"The Docker engine of {machine} doesn't answer at {path}: {cause}. "
            "Start it (systemctl start docker), or run `astraeus-agent check` there."
        ) from error


def _knock(path: str) -> None:
    """The SDK leaves a socket behind, and a long message, when nobody listens."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)


def engine_limits(config: Config) -> Limits:
    """The most locked memory and open files that containers may get: what the engine's process has, or may raise.

    Raises OSError where no engine is there to be looked at.
    """
    process = Path("/proc") / str(_engine_pid(config.docker_socket))
    hard = _hard_limits((process / "limits").read_text())
    if _may_raise((process / "status").read_text()):
        return Limits(nofile=_MOST_FILES)
    files = hard["nofile"]
    return Limits(
        memlock=hard["memlock"], nofile=_MOST_FILES if files == UNLIMITED else min(files, _MOST_FILES)
    )


def _engine_pid(path: str) -> int:
    """Of the process that listens; with socket activation that is systemd, which starts it with its own rights."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[0])


def _hard_limits(text: str) -> dict[str, int]:
    """`/proc/<pid>/limits`: name, soft, hard, unit in columns."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        for title, name in _LIMITS.items():
            if line.startswith(title):
                hard = line.removeprefix(title).split()[1]
                found[name] = UNLIMITED if hard == "unlimited" else int(hard)
    return found


def _may_raise(status: str) -> bool:
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)


def engine_version(config: Config) -> str:
    """ "Docker 28.5.1"; says so where there is none."""
    try:
        client = engine_client(config.docker_socket, config.name)
    except NotPrepared:
        return "the Docker engine doesn't answer"
    try:
        return f"Docker {client.version()['Version']}"
    finally:
        client.close()


def own_limits() -> tuple[str, ...]:
    """What this runtime can't do on this machine because of the agent's own rights."""
    if os.geteuid() == 0:
        return ()
    return (
        "The agent is not root: probes that run a command in a worker fail.",
        "The agent is not root: a drive whose path changes while a worker waits to start is not noticed.",
    )
