"""A registry of the tests' own (Debian's docker-registry) on the loopback of a namespace, open or with a password."""

import io
import os
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from tests.docker.engine import Engine
from tests.docker.spaces import Space

USER, PASSWORD = "puller", "correct-horse-battery"
# bcrypt of PASSWORD, as `htpasswd -B` writes it: the registry takes no other kind.
_HTPASSWD = f"{USER}:$2b$04$GnTiPCPcy8tWWLITk0pL0eMI/kKPWjlDk6M3Ltg6egsY03wgO44M.\n"
_START_SECONDS = 30
_DATA_BYTES = 4 << 20
_KNOCK = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 1).close()"


@dataclass
class Registry:
    """At 127.0.0.1:`port` of `space`, which Docker takes without TLS."""

    space: Space
    directory: Path
    port: int = 5000
    guarded: bool = False
    """Only USER with PASSWORD may pull and push."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def image(self) -> str:
        return f"{self.host}/astraeus/data:1"

    def start(self) -> "Registry":
        config = {
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(self.directory / "store")}},
            "http": {"addr": self.host},
        }
        if self.guarded:
            (self.directory / "htpasswd").write_text(_HTPASSWD)
            config["auth"] = {"htpasswd": {"realm": "tests", "path": str(self.directory / "htpasswd")}}
        (self.directory / "registry.yml").write_text(yaml.safe_dump(config))
        command = self.space.inside("docker-registry", "serve", str(self.directory / "registry.yml"))
        with (self.directory / "registry.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait()
        return self

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        knock = self.space.inside("python3", "-c", _KNOCK, str(self.port))
        while subprocess.run(knock, capture_output=True, timeout=20, check=False).returncode:
            said = (self.directory / "registry.log").read_text()
            assert time.monotonic() < deadline, f"the registry doesn't answer: {said}"
            time.sleep(0.05)

    def push(self, engine: Engine) -> str:
        """Put an image of 4 MiB into it, with nothing to execute; the engine itself forgets it again."""
        client = engine.client()
        try:
            repository, _, tag = self.image.rpartition(":")
            client.api.import_image_from_data(_data_image(), repository=repository, tag=tag)
            login = {"username": USER, "password": PASSWORD} if self.guarded else None
            for line in client.api.push(repository, tag, stream=True, decode=True, auth_config=login):
                assert "error" not in line, line
            client.images.remove(self.image)
        finally:
            client.close()
        return self.image

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)


def _data_image() -> bytes:
    """Random, so that it stays as large when it is compressed."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("data")
        entry.size = _DATA_BYTES
        archive.addfile(entry, io.BytesIO(os.urandom(_DATA_BYTES)))
    return file.getvalue()


_STALL = """
import socket, sys, threading
there, port, size = map(int, sys.argv[1:])
listener = socket.create_server(("127.0.0.1", port))
print("listening", flush=True)

def carry(source, target, left):
    while left > 0 and (data := source.recv(min(left, 65536))):
        target.sendall(data)
        left -= len(data)
    if left <= 0:
        print("stalled", flush=True)
        threading.Event().wait()
    target.shutdown(socket.SHUT_WR)

while True:
    ours, _ = listener.accept()
    theirs = socket.create_connection(("127.0.0.1", there))
    for source, target, left in ((ours, theirs, 1 << 62), (theirs, ours, size)):
        threading.Thread(target=carry, args=(source, target, left), daemon=True).start()
"""


@dataclass
class Stalling:
    """A way to the registry on which every connection stands still after 1 MiB, and which ends with its block."""

    space: Space
    registry: int
    port: int
    process: subprocess.Popen[str] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        command = self.space.inside(
            sys.executable, "-c", _STALL, str(self.registry), str(self.port), str(1 << 20)
        )
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.wait()
        return self

    def wait(self) -> None:
        """Until it says what it does next: that it listens, then that it has stalled."""
        assert self.process is not None
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "the way to the registry has ended"

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait(10)
        self.process.stdout.close()
