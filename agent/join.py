"""`join`: a join token for a machine credential."""

import re
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from agent import VERSION
from agent.client import Console, ConsoleError, is_loopback
from agent.config import (
    CONFIG_NAME,
    DOCKER_SOCKET,
    Config,
    ConfigError,
    RuntimeName,
    config_write,
    state_prepare,
)
from agent.runtime import NotPrepared
from agent.simulate import SimulateError, simulated_read
from wire.agent_messages import JOIN_PATH, JoinAnswer, JoinRequest
from wire.environment import MAX_PORT
from wire.mesh import LISTEN_PORT, UNREACHABLE, check_endpoint

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class JoinError(Exception):
    """Why this machine didn't join, and what to do."""


@dataclass(frozen=True)
class Joining:
    """The command line of `join`."""

    server: str
    token: str
    state: Path
    name: str | None = None
    runtime: RuntimeName = "bubblewrap"
    simulate: Path | None = None
    address: str | None = None
    mesh: bool = True
    mesh_port: int = LISTEN_PORT
    mesh_endpoint: str | None = None
    hide: tuple[Path, ...] = ()
    drive_roots: tuple[Path, ...] = ()
    gpus: tuple[str, ...] = ()
    docker_socket: str = DOCKER_SOCKET


def join(joining: Joining) -> Config:
    """Exchange the token and keep the credential, mode 0600. Everything that could fail is checked first,
    as a token is good for one use. Raises JoinError."""
    server, name = _server(joining.server), _name(joining.name)
    if Path("/") in [path.resolve() for path in joining.drive_roots]:
        raise JoinError("Drives can't lie anywhere: give --drive-root a directory of theirs, such as /data.")
    _require_endpoint(joining)
    try:
        state = state_prepare(joining.state)
        if (state / CONFIG_NAME).exists():
            raise JoinError(
                f"{state} already holds a joined agent. Start it with `astraeus-agent run --state-dir {state}`, "
                f"or remove {state / CONFIG_NAME} to join anew."
            )
        if joining.simulate:
            simulated_read(joining.simulate)
        if joining.runtime == "docker":
            _find_engine(joining.docker_socket, name)
        answer = _exchange(server, joining.token, name, joining.runtime)
        config = Config(
            server=server,
            credential=answer.credential,
            name=answer.machine,
            cluster=answer.cluster,
            runtime=joining.runtime,
            simulate=str(joining.simulate.resolve()) if joining.simulate else None,
            address=joining.address,
            mesh=joining.mesh,
            mesh_port=joining.mesh_port,
            mesh_endpoint=joining.mesh_endpoint,
            hide=tuple(str(path.resolve()) for path in joining.hide),
            drive_roots=tuple(str(path.resolve()) for path in joining.drive_roots),
            gpus=joining.gpus,
            docker_socket=joining.docker_socket,
        )
        config_write(state, config)
    except (ConfigError, SimulateError) as error:
        raise JoinError(str(error)) from error
    return config.model_copy(update={"state": state})


def _find_engine(path: str, machine: str) -> None:
    from agent.containers.engine import engine_client  # the SDK takes half a second to load

    try:
        engine_client(path, machine).close()
    except NotPrepared as error:
        raise JoinError(str(error)) from error


def _require_endpoint(joining: Joining) -> None:
    if not 1 <= joining.mesh_port <= MAX_PORT:
        raise JoinError(f"{joining.mesh_port} is no port. Give --mesh-port one from 1 to {MAX_PORT}.")
    if joining.mesh_endpoint in (None, UNREACHABLE):
        return
    try:
        check_endpoint(joining.mesh_endpoint or "?")
    except ValueError as error:
        raise JoinError(f"--mesh-endpoint {joining.mesh_endpoint} can't be used: {error}.") from error


def _exchange(server: str, token: str, name: str, runtime: RuntimeName) -> JoinAnswer:
    console = Console(server)
    request = JoinRequest(token=token, name=name, runtime=runtime, agent_version=VERSION)
    try:
        return console.send(JOIN_PATH, request, JoinAnswer)
    except ConsoleError as error:
        raise JoinError(_refused(error, name)) from error
    finally:
        console.close()


def _refused(error: ConsoleError, name: str) -> str:
    said = str(error).rstrip(".")
    if error.status in (401, 403):
        return f"The join token wasn't accepted: {said}. Tokens are good for one use and one hour; make a new one."
    if error.status == 409:  # noqa: PLR2004 - conflict
        return f"The name {name} is taken: {said}. Choose another with --name."
    if error.status is None:
        return f"{said}. Is the console running there, and is the URL right?"
    return f"The console refused: {said}."


def _server(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise JoinError(f"{text} is no URL of a console. It looks like https://console.example.com.")
    if parts.scheme == "http" and not is_loopback(text):
        print(  # noqa: T201 - a command's own output
            f"warning: {text} is not encrypted; the machine's credential, secrets and logs can be read on the way.",
            file=sys.stderr,
        )
    return text.rstrip("/")


def _name(text: str | None) -> str:
    name = text or socket.gethostname().partition(".")[0].lower()
    if not _NAME.fullmatch(name):
        raise JoinError(
            f"{name} can't be a machine's name: it takes lower-case letters, digits and `-`, at most 63. "
            "Give one with --name."
        )
    return name
