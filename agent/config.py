"""The state directory and `agent.json` in it: what `join` writes and `run` reads."""

import json
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from agent.files import file_replace
from wire.mesh import LISTEN_PORT

CONFIG_NAME = "agent.json"
DOCKER_SOCKET = "/run/docker.sock"
RuntimeName = Literal["docker", "bubblewrap"]


class ConfigError(Exception):
    """A state directory that can't be used; the message says what to do."""


def _drive_root(path: str) -> str:
    if not Path(path).is_absolute() or os.path.realpath(path) == "/":
        raise ValueError("it must be an absolute path other than /")
    return os.path.normpath(path)


class Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    server: str
    credential: str
    name: str
    cluster: str = ""
    runtime: RuntimeName = "bubblewrap"
    simulate: str | None = None
    """Path of an inventory file that this machine pretends to have."""
    address: str | None = None
    """What other machines reach this one by; None: the address of the route to the console."""
    mesh: bool = True
    """False: workers share this machine's network, and what it had of the mesh is taken away."""
    mesh_port: int = Field(default=LISTEN_PORT, ge=1, le=65535)
    """UDP, on which WireGuard listens for the other machines."""
    mesh_endpoint: str | None = None
    """Where these find it, "203.0.113.9:51820", or "none"; None: at `address` and `mesh_port`."""
    hide: tuple[str, ...] = ()
    """Further files and directories that no worker may see, such as other agents' state."""
    drive_roots: tuple[Annotated[str, AfterValidator(_drive_root)], ...] = ()
    """Drives may lie below these directories, and nowhere else: whoever runs the console can't ask for more.
    Workers see of them only the drives that they mount."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the only GPUs that this agent offers, so that several agents, or other software, can share a machine.
    None named: all of them."""
    docker_socket: str = DOCKER_SOCKET
    """Of the Docker engine, where the runtime is docker."""
    device_root: str | None = None
    """Below it lie stand-ins for the device nodes (`dev/infiniband/…`) of a simulated machine, for tests."""
    state: Path = Path()

    def hidden(self) -> tuple[str, ...]:
        return (str(self.state), *self.hide)


def state_default() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/astraeus-agent")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "astraeus-agent"


def config_write(state: Path, config: Config) -> None:
    """Mode 0600, as the credential in it is worth this machine. Raises ConfigError."""
    text = json.dumps(config.model_dump(exclude={"state"}), indent=2) + "\n"
    try:
        file_replace(state / CONFIG_NAME, text.encode())
    except OSError as error:
        raise ConfigError(f"{state / CONFIG_NAME} can't be written: {error.strerror}.") from error


def config_read(state: Path) -> Config:
    """Raises ConfigError."""
    path = state / CONFIG_NAME
    try:
        config = Config.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(
            f"{state} holds no agent. Run `astraeus-agent join --server URL --token TOKEN --state-dir {state}`."
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}.") from error
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, flaw["loc"])) or "the document" for flaw in error.errors())
        raise ConfigError(f"{path} is damaged ({fields}). Remove it and join again.") from error
    return config.model_copy(update={"state": state.resolve()})


def state_prepare(state: Path) -> Path:
    """The directory, made if need be, for this user only. Raises ConfigError."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        resolved = state.resolve()
        if not os.access(resolved, os.W_OK):
            raise ConfigError(f"{resolved} can't be written by this user. Choose another with --state-dir.")
    except OSError as error:
        raise ConfigError(
            f"{state} can't be made: {error.strerror}. Choose another with --state-dir."
        ) from error
    if any(character in str(resolved) for character in "\n\r\0"):
        raise ConfigError("The state directory's path may have no line breaks.")
    return resolved
