"""`task_template`: what every worker of a group runs, and with what."""

from typing import Annotated, Final, Literal

from pydantic import Field

from wire.names import MAX_ENV_NAME
from wire.quantities import MIB
from wire.spec.base import (
    AbsolutePath,
    EnvName,
    Image,
    Line,
    MountPath,
    Part,
    Slug,
    SubPath,
    UrlPath,
    User,
    checked,
)
from wire.spec.resources import RequestedResources
from wire.spec.shapes import Shape

MAX_CONFIG_BYTES: Final = MIB
MAX_TIME_LIMIT: Final = 366 * 86_400
MAX_ENV: Final = 1000
# The kernel takes 128 KiB for one argument or one variable with its name (MAX_ARG_STRLEN).
MAX_ARGUMENT: Final = 128 * 1024 - MAX_ENV_NAME - len("=\0")

StopSignal = Literal["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGKILL"]


def _check_argument(text: str) -> str:
    if len(text.encode()) > MAX_ARGUMENT:
        raise ValueError(
            f"This text has more than {MAX_ARGUMENT} bytes, which no program can be given. Use a file."
        )
    return text


Argument = Annotated[
    str, checked("too_long", _check_argument), Field(json_schema_extra={"maxLength": MAX_ARGUMENT})
]


class ConfigFile(Part):
    """A text file that comes with the run."""

    mounts: tuple[MountPath, ...] = Field(
        strict=False,
        min_length=1,
        max_length=64,
        title="Paths",
        description="Absolute paths at which the file stands in every worker, read-only.",
    )
    value: str = Field(
        max_length=MAX_CONFIG_BYTES, title="Content", description="The file's text. 1 MiB in the whole run."
    )
    mode: int = Field(
        default=0o444,
        ge=0,
        le=0o777,
        title="Permissions",
        description="Permission bits as a decimal number: 292 is 0444 (everybody reads), 365 is 0555 (and "
        "executes).",
    )


class DriveRef(Part):
    """A drive of the workspace, mounted into every worker."""

    name: Slug = Field(title="Drive", description="The drive's name in the workspace.")
    mount_path: MountPath = Field(
        title="Path", description="Absolute path at which the drive stands in the worker."
    )
    read_only: bool = Field(
        default=True, title="Read-only", description="False lets the workers write to the drive."
    )
    sub_path: SubPath | None = Field(
        default=None,
        title="Only this directory",
        description="A directory of the drive, mounted in place of the whole.",
    )


class SecretRef(Part):
    """A secret of the workspace, given to every worker as a variable or as a file."""

    name: Slug = Field(title="Secret", description="The secret's name in the workspace.")
    env: EnvName | None = Field(
        default=None, title="Variable", description="Give the secret as this environment variable."
    )
    mount_path: MountPath | None = Field(
        default=None,
        title="File",
        description="Give the secret as a file at this absolute path, held in memory.",
    )


class ExecProbe(Part):
    """A command run inside the worker; exit code 0 is success."""

    command: Line = Field(title="Executable", description="The executable, without its arguments.")
    args: tuple[Argument, ...] = Field(
        default=(),
        strict=False,
        max_length=1024,
        title="Arguments",
        description="Its arguments, one a string.",
    )


class TcpProbe(Part):
    """A connection to a port of the worker."""

    port: int = Field(
        ge=1, le=65535, title="Port", description="Success when something accepts a connection here."
    )


class HttpProbe(Part):
    """A GET request to the worker; any answer from 200 to 399 is success."""

    port: int = Field(ge=1, le=65535, title="Port", description="The port that answers.")
    path: UrlPath = Field(default="/", title="Path", description="The path asked for.")


class Probe(Part):
    """One way to look at a worker, repeated. Give exactly one of `exec`, `tcp` and `http`."""

    exec: ExecProbe | None = Field(
        default=None, title="Command", description="Run a command inside the worker; exit code 0 is success."
    )
    tcp: TcpProbe | None = Field(
        default=None, title="Port", description="Open a connection to a port of the worker."
    )
    http: HttpProbe | None = Field(default=None, title="HTTP", description="Ask the worker over HTTP.")
    period_seconds: int = Field(
        default=10, ge=1, le=3600, title="Every", description="Seconds from one look to the next."
    )
    timeout_seconds: int = Field(
        default=5, ge=1, le=600, title="Time-out", description="Seconds after which a look counts as failed."
    )
    failure_threshold: int = Field(
        default=3, ge=1, le=1000, title="Failures", description="So many failures in a row count."
    )


class Probes(Part):
    """How Astraeus looks at a worker while it runs."""

    startup: Probe | None = Field(
        default=None,
        title="Start-up",
        description="Until it succeeds the other probes wait; when it fails, the worker has failed.",
    )
    readiness: Probe | None = Field(
        default=None, title="Readiness", description="Shown on the worker's page; a failure stops nothing."
    )
    liveness: Probe | None = Field(
        default=None,
        title="Liveness",
        description="When it fails, the worker has failed, as if its process had ended.",
    )


class TaskTemplate(Part):
    """What every worker of the group runs."""

    image: Image = Field(
        title="Image",
        description="The container image, `registry/path:tag`. Machines without a container engine use their "
        "own files instead.",
    )
    command: Line = Field(
        title="Command",
        description="The executable, one string without arguments. It is the worker's main process and gets "
        "the stop signal.",
    )
    args: tuple[Argument, ...] = Field(
        default=(),
        strict=False,
        max_length=4096,
        title="Arguments",
        description="The command's arguments, one a string. Nothing is expanded: for variables use `bash` "
        "with `-c`.",
    )
    env: dict[EnvName, Argument] = Field(
        default_factory=dict,
        max_length=MAX_ENV,
        title="Environment",
        description="Variables of the worker, texts. They win over every variable that Astraeus sets.",
    )
    working_dir: AbsolutePath | None = Field(
        default=None, title="Working directory", description="Where the command starts. Default: the image's."
    )
    user: User | None = Field(
        default=None,
        title="User",
        description="Who runs the command: `1000`, `1000:1000` or a name. Default: the image's.",
    )
    time_limit_seconds: int | None = Field(
        default=None,
        ge=1,
        le=MAX_TIME_LIMIT,
        title="Time limit",
        description="Seconds that an attempt may run; then the run is stopped and Failed. It also lets other "
        "runs be planned.",
    )
    stop_signal: StopSignal = Field(
        default="SIGTERM", title="Stop signal", description="The signal that asks the command to end."
    )
    stop_grace_seconds: int = Field(
        default=30, ge=0, le=3600, title="Grace", description="Seconds between the stop signal and SIGKILL."
    )
    warn_signal_seconds: int | None = Field(
        default=None,
        ge=1,
        le=86_400,
        title="Warn before the time limit",
        description="The stop signal is also sent so many seconds before the time limit, for a last "
        "checkpoint.",
    )
    requested_resources: RequestedResources = Field(
        default_factory=RequestedResources,
        title="Resources",
        description="GPUs, cores, memory, network and place.",
    )
    configs: tuple[ConfigFile, ...] = Field(
        default=(),
        strict=False,
        max_length=256,
        title="Files",
        description="Text files that come with the run, read-only, 1 MiB in all.",
    )
    datavolume_refs: tuple[DriveRef, ...] = Field(
        default=(),
        strict=False,
        max_length=64,
        title="Drives",
        description="Drives of the workspace to mount.",
    )
    secret_refs: tuple[SecretRef, ...] = Field(
        default=(),
        strict=False,
        max_length=256,
        title="Secrets",
        description="Secrets of the workspace, as variables or files; masked in logs.",
    )
    registry_credential: Slug | None = Field(
        default=None,
        title="Registry credential",
        description="The workspace's credential to pull the image with.",
    )
    probes: Probes = Field(
        default_factory=Probes, title="Probes", description="How Astraeus looks at a worker while it runs."
    )
    hang_after_seconds: int | None = Field(
        default=None,
        ge=60,
        le=7 * 86_400,
        title="Hung after",
        description="No log line for so many seconds and GPUs idle: the worker counts as hung and as failed.",
    )

    def shapes(self) -> tuple[Shape, ...]:
        """Every split of the group that the request allows, fewest machines first."""
        return self.requested_resources.shapes()

    def amounts(self, shape: Shape) -> tuple[int, int] | None:
        """(cores, bytes of memory) of each worker of `shape`; None: the GPUs' share of the machine."""
        return self.requested_resources.amounts(shape)
