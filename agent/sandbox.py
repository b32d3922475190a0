"""A worker's sandbox as bubblewrap's options: isolation, mounts, environment."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from agent.config import Config
from agent.devices import device_nodes
from agent.drives import Drive
from agent.layout import Bind, Data, LayoutError, Machine, layout
from agent.names import HOSTS, hosts_file
from agent.runtime import NotPrepared
from agent.supervision.sandbox_process import FIRST_FILE_FD, GATE_FD, READY_FD, STATUS_FD
from agent.users import user_find, user_reaches
from wire.assignments import Assignment

STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SECRETS = ("/etc/shadow", "/etc/gshadow", "~/.ssh", "~/.aws", "~/.kube", "~/.docker", "~/.netrc", "~/.gnupg")
"""Credentials of this machine that no worker has any use for."""
_MOST_OPTIONS = 8900  # bubblewrap refuses more than 9000
_HOSTNAME_LENGTH = 64

Content = tuple[str, int, bytes]
"""Path in the sandbox, mode and bytes of a file."""


def contents(assignment: Assignment, *, name: str, address: str) -> list[Content]:
    """Every file that is mounted into the sandbox, secrets excepted.

    /etc/hosts is one of them, unless the run has one of its own.
    """
    files = [(file.path, file.mode, file.value.encode()) for file in assignment.files]
    own = all(path != str(HOSTS) for path, _, _ in files)
    if own and HOSTS.is_file() and not HOSTS.is_symlink():
        files.append((str(HOSTS), 0o644, hosts_file(assignment, machine=name, address=address)))
    return files


def sandbox_options(
    config: Config,
    assignment: Assignment,
    *,
    files: Sequence[Content],
    secrets: Sequence[Content],
    drives: Sequence[Drive],
) -> list[str]:
    """bubblewrap's options, the command and secret variables excepted: nothing in them is secret.

    `files`, then `secrets`, are read from the descriptors from FIRST_FILE_FD on. Raises NotPrepared.
    """
    wanted: list[Data | Bind] = [
        *(drive.bind for drive in drives),
        *(
            Data(path, mode, FIRST_FILE_FD + number, "config" if number < len(files) else "secret")
            for number, (path, mode, _) in enumerate([*files, *secrets])
        ),
    ]
    options = [*_isolation(config, assignment), *_mounts(config, assignment, wanted)]
    options += ["--chdir", assignment.working_dir or "/"]
    for key, value in environment(config, assignment).items():
        options += ["--setenv", key, value]
    if len(options) > _MOST_OPTIONS:
        raise NotPrepared("The configs need too many mounts. Put them into a directory of their own.")
    return options


def environment(config: Config, assignment: Assignment) -> dict[str, str]:
    """All that the worker finds in its environment; what the assignment sets wins."""
    programs = str(Path(sys.executable).parent.resolve())  # a link below /tmp leads nowhere inside
    defaults = {"PATH": f"{programs}:{STANDARD_PATH}", "HOME": "/tmp", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}  # noqa: S108 - the sandbox's own
    if assignment.gpu_uuids and not config.simulate:
        defaults["CUDA_VISIBLE_DEVICES"] = ",".join(assignment.gpu_uuids)
    return defaults | assignment.env


def joined(words: Sequence[str]) -> bytes:
    """NUL-separated, as `bwrap --args` reads it. Raises NotPrepared for a word that would become two."""
    for word in words:
        if "\0" in word:
            raise NotPrepared(
                "The command, its arguments or its environment have a NUL character. Remove it."
            )
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def _isolation(config: Config, assignment: Assignment) -> list[str]:
    options = [
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--hostname",
        config.name[:_HOSTNAME_LENGTH],
    ]
    options += ["--as-pid-1", "--new-session", "--die-with-parent", "--clearenv", "--cap-drop", "ALL"]
    options += ["--json-status-fd", str(STATUS_FD), "--block-fd", str(GATE_FD)]
    if assignment.rdma and os.geteuid() == 0 and not assignment.user:
        options += ["--cap-add", "CAP_IPC_LOCK"]
    return options


def _mounts(config: Config, assignment: Assignment, wanted: Sequence[Data | Bind]) -> list[str]:
    devices: tuple[str, ...] = ()
    if not config.simulate:  # simulated devices aren't there to be passed
        devices = device_nodes(gpu_uuids=assignment.gpu_uuids, rdma=assignment.rdma, imex=assignment.imex)
    hidden = [*config.hidden(), *config.drive_roots, *(str(Path(path).expanduser()) for path in SECRETS)]
    kept = [sys.prefix, sys.base_prefix]
    user = user_find(assignment.user)
    if user is not None:  # it can neither see these nor mount over them
        hidden = [path for path in hidden if user_reaches(user, path)]
        kept = [path for path in kept if user_reaches(user, path)]
    try:
        return layout(
            Machine(hidden=tuple(hidden), kept=tuple(kept), devices=devices),
            wanted,
            shm_bytes=assignment.shm_bytes,
            tmp_bytes=assignment.memory_bytes,
            ready_descriptor=READY_FD,
        )
    except LayoutError as error:
        raise NotPrepared(str(error)) from error
