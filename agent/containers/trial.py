"""A program in a short-lived container that is like a worker's: same image, network, devices, user and variables."""

import select
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException
from docker.types import LogConfig
from requests.exceptions import RequestException

from agent.config import Config
from agent.containers.engine import engine_client, engine_limits
from agent.containers.files import config_files, worker_owner
from agent.containers.images import Images, PullStopped, Tell
from agent.containers.notes import PULLED_NOTE, note_add
from agent.containers.preparing import container_remove, refused, surroundings_of
from agent.containers.settings import Bound, Container, container_request, trial_name
from agent.journal import Entry
from agent.mesh.mesh import Mesh
from agent.runtime import Lifeline, NotPrepared, Program, Ran
from wire.assignments import Assignment

_LOOK_SECONDS = 0.1
_OUTPUT_LINES = 1000
_LOG_BYTES = "1m"
_READABLE = 0o444


class Trial:
    """Of one assignment, in the thread of whoever waits for it."""

    def __init__(
        self, config: Config, entry: Entry, images: Images, mesh: Mesh | None, *, address: str
    ) -> None:
        self._config = config
        self._entry = entry
        self._images = images
        self._mesh = mesh
        self._address = address

    def run(self, assignment: Assignment, program: Program, lifeline: Lifeline, tell: Tell) -> Ran:
        """`tell` hears how far the image is, and an empty text when it is there. Raises NotPrepared, also OSError."""
        try:
            pulled = self._images.have(assignment.image, assignment.registry, tell, lambda: _is_cut(lifeline))
            tell("")
            if pulled.note:
                note_add(self._entry, PULLED_NOTE, pulled.note)
            client = engine_client(self._config.docker_socket, self._config.name)
        except PullStopped:
            return Ran(error="stopped while its image was pulled")
        try:
            container = self._container(client, assignment, program, pulled.image)
            return self._ran(client, container, program, lifeline)
        except (DockerException, RequestException) as error:
            raise NotPrepared(refused(self._config, error)) from error
        finally:
            client.close()

    def _container(
        self, client: docker.DockerClient, assignment: Assignment, program: Program, image: Mapping[str, Any]
    ) -> Container:
        alike = program.beside(assignment)
        around = surroundings_of(self._config, alike, client, engine_limits(self._config), self._mesh)
        hosts = config_files(
            self._entry,
            alike,
            worker_owner(alike, image),
            machine=self._config.name,
            address=self._address,
        )
        files = [*hosts, Bound(self._source(program), program.path)]
        return replace(around, assignment_id=self._entry.id, files=files)

    def _source(self, program: Program) -> Path:
        """The directory is the agent's own; the engine mounts the file alone."""
        directory = self._entry.path / "trial"
        directory.mkdir(mode=0o700, exist_ok=True)
        file = directory / "program"
        file.unlink(missing_ok=True)
        file.write_bytes(program.source)
        file.chmod(_READABLE)
        return file

    def _ran(
        self, client: docker.DockerClient, container: Container, program: Program, lifeline: Lifeline
    ) -> Ran:
        name = trial_name(self._entry.id)
        request = container_request(container)
        # It has no secrets, and nobody else keeps its output.
        request["HostConfig"]["LogConfig"] = LogConfig(
            type=LogConfig.types.JSON, config={"max-size": _LOG_BYTES}
        )
        container_remove(client, self._entry.id)
        try:
            client.api.create_container_from_config(request, name)  # type: ignore[no-untyped-call]
            client.api.start(name)
            ended = _wait(client, name, time.monotonic() + program.seconds, lifeline)
            if not ended:
                with suppress(APIError):  # it has just ended; any other trouble shows in the next request
                    client.api.kill(name)
            state = client.api.inspect_container(name)["State"]
            output = client.api.logs(name, stdout=True, stderr=True, tail=_OUTPUT_LINES)
        finally:
            container_remove(client, self._entry.id)
        return Ran(
            code=int(state["ExitCode"]) if ended else None,
            timed_out=not ended and not _is_cut(lifeline),
            output=output.decode(errors="replace"),
        )


def _wait(client: docker.DockerClient, name: str, until: float, lifeline: Lifeline) -> bool:
    """True when it ended by itself, False when its time is up or the lifeline is cut."""
    while client.api.inspect_container(name)["State"]["Running"]:
        if time.monotonic() >= until or _is_cut(lifeline, _LOOK_SECONDS):
            return False
    return True


def _is_cut(lifeline: Lifeline, seconds: float = 0.0) -> bool:
    return bool(select.select([lifeline.reader], [], [], seconds)[0])
