"""Docker engines of the tests' own: each with its data, its socket and its network namespace, ended by pid."""

import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import docker
from docker.errors import APIError, DockerException

from tests.agent.agents import alive, eventually
from tests.docker.image import IMAGE, image_archive
from tests.docker.spaces import Space

_START_SECONDS = 90
_END_SECONDS = 30
_LOCKED_BYTES = 8 << 20


@dataclass
class Engine:
    """`dockerd` in `space`. `kill` and `start` again find the same containers, as after a crash."""

    space: Space
    bip: str = "172.31.255.1/24"
    """Of its default bridge; engines in namespaces of their own may share it."""
    options: tuple[str, ...] = ()
    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="astr-")))
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.directory}/docker.sock"

    def client(self) -> docker.DockerClient:
        """To be closed by the caller."""
        return docker.DockerClient(base_url=self.url, timeout=60)

    def start(self) -> "Engine":
        self._forget_pid_file()
        command = self.space.inside(
            *_limited(),
            "dockerd",
            *("--data-root", str(self.directory / "data"), "--exec-root", str(self.directory / "exec")),
            *("-H", self.url, "-p", str(self.directory / "pid"), "--bip", self.bip, *self.options),
        )
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._wait()
        return self

    def _forget_pid_file(self) -> None:
        """A killed engine leaves it behind, and another process may have the number by now."""
        (self.directory / "pid").unlink(missing_ok=True)

    def _wait(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"dockerd has ended:\n{self.said()}"
            if self._listens():
                return
            time.sleep(0.05)
        raise AssertionError(f"dockerd doesn't answer:\n{self.said()}")

    def _listens(self) -> bool:
        """It answers from the moment it listens on; the SDK leaves a socket behind when nobody does."""
        with socket.socket(socket.AF_UNIX) as knock, suppress(OSError):
            knock.connect(self.url.removeprefix("unix://"))
            return True
        return False

    def said(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-4000:]

    def load(self) -> "Engine":
        """With the tests' image."""
        client = self.client()
        with image_archive().open("rb") as archive:
            changes = ["ENV PATH=/usr/local/bin:/usr/bin:/bin", 'CMD ["bash"]']
            client.api.import_image_from_data(
                archive, repository=IMAGE.split(":")[0], tag="1", changes=changes
            )
        client.close()
        return self

    def kill(self) -> None:
        """SIGKILL to dockerd: its containerd dies with it, the containers and their shims go on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(_END_SECONDS)
        # The next dockerd must not take the dying containerd for one that runs.
        file = self.directory / "exec" / "containerd" / "containerd.pid"
        if file.exists():
            pid = int(file.read_text())
            eventually(lambda: not alive(pid), "its containerd has ended", _END_SECONDS)
            file.unlink()

    def stop(self) -> None:
        """Ends its containers, itself, and its containerd; nothing stays."""
        if self.process is not None and self.process.poll() is None:
            with suppress(DockerException):
                self.remove_containers()
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_SECONDS)
            if self.process.poll() is None:
                self.kill()
        self._end_leftovers()
        shutil.rmtree(self.directory, ignore_errors=True)

    def remove_containers(self) -> None:
        client = self.client()
        try:
            eventually(lambda: self._removed(client), "no container is left", 30)
        finally:
            client.close()

    def _removed(self, client: docker.DockerClient) -> bool:
        """An agent that has just ended may be removing one as well: then the engine refuses to."""
        for container in client.containers.list(all=True, ignore_removed=True):
            with suppress(APIError):
                container.remove(force=True)
        return not client.containers.list(all=True, ignore_removed=True)

    def _end_leftovers(self) -> None:
        """What a killed dockerd has left: its containerd, shims and containers all name its directory."""
        mark = str(self.directory).encode()
        deadline = time.monotonic() + _END_SECONDS
        while left := [pid for pid in _processes() if mark in _command_line(pid)]:
            assert time.monotonic() < deadline, f"processes of {self.directory} survive SIGKILL: {left}"
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            point = line.split()[1]
            if point.startswith(str(self.directory)):
                subprocess.run(["umount", "--lazy", point], capture_output=True, timeout=30, check=False)


def _limited() -> Sequence[str]:
    """Engines that can lock little memory and can't change that, wherever the tests run."""
    _, most = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    locked = min(most, _LOCKED_BYTES) if most != resource.RLIM_INFINITY else _LOCKED_BYTES
    return ("prlimit", f"--memlock={locked}:{locked}", "setpriv", "--bounding-set=-sys_resource")


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _command_line(pid: int) -> bytes:
    if pid == os.getpid():
        return b""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
