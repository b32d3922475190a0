"""What a worker's container is made of, as the Docker Engine's API takes it. Pure: facts in, a request out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.types import DeviceRequest, HostConfig, LogConfig, Mount, Ulimit

from agent.drives import Drive
from wire.assignments import Assignment

LABEL_ASSIGNMENT, LABEL_AGENT = "io.astraeus.assignment", "io.astraeus.agent"
NAME_PREFIX = "astraeus-"
UNLIMITED = -1
_API_VERSION = "1.41"  # only which settings may be given; the engine's own is used to talk
_CPU_PERIOD = 100_000
_MOST_PROCESSES = 32_768
_HOSTNAME_LENGTH = 64
_LATE_TO_DIE = 500
"""The machine's own services outlive a worker that takes all memory."""
_NEVER_NEEDED = ("AUDIT_WRITE", "MKNOD", "NET_RAW")
"""Of Docker's usual capabilities: on the host's network the last would let a worker listen to the machine's."""
_CDI_KIND = "nvidia.com/gpu"


@dataclass(frozen=True)
class Limits:
    """The most that the engine may give a container; UNLIMITED or a number."""

    memlock: int = UNLIMITED
    nofile: int = 1 << 20


@dataclass(frozen=True)
class Bound:
    """A file of the agent's, mounted read-only: a config or a secret."""

    source: Path
    path: str


@dataclass(frozen=True)
class Container:
    """Everything that decides about one worker's container."""

    assignment: Assignment
    assignment_id: str
    agent: str
    """Tells this agent's containers from those of others on the same engine."""
    machine: str
    files: Sequence[Bound]
    drives: Sequence[Drive]
    variables: Mapping[str, str]
    devices: Mapping[str, str]
    """Device node on the machine → its path in the container."""
    gpus: Sequence[str] = ()
    cdi: bool = False
    limits: Limits = Limits()
    network: str = "host"
    """Of the engine; a worker with a place on the mesh has its address there."""


def container_name(assignment_id: str) -> str:
    return NAME_PREFIX + assignment_id


def trial_name(assignment_id: str) -> str:
    """Of the container of a check before the worker is created."""
    return f"{NAME_PREFIX}{assignment_id}-check"


def container_request(wanted: Container) -> dict[str, Any]:
    """Arguments of the SDK's `create_container_from_config`."""
    assignment = wanted.assignment
    request: dict[str, Any] = {
        "Image": assignment.image,
        "Hostname": wanted.machine[:_HOSTNAME_LENGTH],
        "Env": [f"{name}={value}" for name, value in wanted.variables.items()],
        "Labels": {
            LABEL_ASSIGNMENT: wanted.assignment_id,
            LABEL_AGENT: wanted.agent,
            "io.astraeus.run": assignment.run,
            "io.astraeus.worker": assignment.worker,
        },
        "StopSignal": assignment.stop_signal,
        "AttachStdin": False,
        "Tty": False,
        "HostConfig": _host(wanted),
    }
    if assignment.mesh is not None:
        own = {"IPAMConfig": {"IPv4Address": str(assignment.mesh.address)}}
        request["NetworkingConfig"] = {"EndpointsConfig": {wanted.network: own}}
    if assignment.command:
        request |= {"Entrypoint": [assignment.command], "Cmd": list(assignment.args)}
    elif assignment.args:
        request["Cmd"] = list(assignment.args)
    optional = {"WorkingDir": assignment.working_dir, "User": assignment.user}
    return request | {key: value for key, value in optional.items() if value}


def _host(wanted: Container) -> HostConfig:
    assignment = wanted.assignment
    memory = assignment.memory_bytes or None
    return HostConfig(
        version=_API_VERSION,
        network_mode=wanted.network,
        mounts=[*_drives(wanted.drives), *_files(wanted.files)],
        devices=[f"{source}:{path}:rwm" for source, path in wanted.devices.items()],
        device_requests=_device_requests(wanted),
        cap_add=["IPC_LOCK"] if assignment.rdma else None,
        cap_drop=list(_NEVER_NEEDED),
        security_opt=["no-new-privileges"],
        ulimits=_ulimits(wanted.limits),
        shm_size=assignment.shm_bytes or None,
        ipc_mode="private",
        cpu_period=_CPU_PERIOD,
        # Unlike `--cpus` this may be more than the machine has, as on one that is simulated.
        cpu_quota=int(assignment.cpu_cores * _CPU_PERIOD),
        mem_limit=memory,
        memswap_limit=memory,
        pids_limit=_MOST_PROCESSES,
        oom_score_adj=_LATE_TO_DIE,
        restart_policy={"Name": "no"},
        # The supervisor keeps the output; the engine's own copy would have the secrets in it.
        log_config=LogConfig(type=LogConfig.types.NONE, config={}),
    )


def _ulimits(limits: Limits) -> list[Ulimit]:
    given = [Ulimit(name="nofile", soft=limits.nofile, hard=limits.nofile)]
    if limits.memlock == UNLIMITED:
        given.append(Ulimit(name="memlock", soft=UNLIMITED, hard=UNLIMITED))
    return given


def _device_requests(wanted: Container) -> list[DeviceRequest] | None:
    if not wanted.gpus:
        return None
    if wanted.cdi:
        return [DeviceRequest(driver="cdi", device_ids=[f"{_CDI_KIND}={uuid}" for uuid in wanted.gpus])]
    return [DeviceRequest(driver="nvidia", device_ids=list(wanted.gpus), capabilities=[["gpu"]])]


def _drives(drives: Sequence[Drive]) -> list[Mount]:
    return [
        Mount(drive.bind.path, drive.bind.source, type="bind", read_only=drive.bind.read_only)
        for drive in drives
    ]


def _files(files: Sequence[Bound]) -> list[Mount]:
    return [Mount(file.path, str(file.source), type="bind", read_only=True) for file in files]


def cdi_is_configured(directories: Sequence[str]) -> bool:
    """Whether one of the engine's CDI directories describes NVIDIA's GPUs."""
    for directory in map(Path, directories):
        for file in [*directory.glob("*.yaml"), *directory.glob("*.json")]:
            if _CDI_KIND in file.read_text(errors="replace"):
                return True
    return False
