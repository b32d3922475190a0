"""The runtime docker: workers are containers, each with a supervisor that starts it and keeps its output."""

import logging
import os
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from agent.config import Config
from agent.containers.engine import engine_client, engine_version, own_limits
from agent.containers.files import secrets_forget
from agent.containers.images import Images
from agent.containers.messages import explained
from agent.containers.notes import with_notes
from agent.containers.preparing import Preparing, container_remove, launch_settings
from agent.containers.settings import LABEL_AGENT, LABEL_ASSIGNMENT
from agent.containers.trial import Trial
from agent.files import file_replace
from agent.inside import Sandboxed, run_inside
from agent.journal import Entry, Facts
from agent.launching import Places, Supervisors, order_stop
from agent.mesh.mesh import Mesh
from agent.runtime import Lifeline, NotPrepared, Program, Ran

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 5.0


class Docker:
    name = "docker"

    def __init__(
        self,
        config: Config,
        places: Places,
        address: Callable[[], str],
        port_taken: Callable[[int], None],
        mesh: Mesh | None,
    ) -> None:
        self._config = config
        self._places = places
        self._address = address
        self._port_taken = port_taken
        self._mesh = mesh
        self._supervisors = Supervisors()
        self._images = Images(lambda: engine_client(config.docker_socket, config.name), config.name)
        self._preparing: dict[str, Preparing] = {}
        self._pulled: dict[str, str] = {}
        """Assignment → how far the pull of its image is, which a check waits for."""
        self._lock = threading.Lock()
        self._swept = False
        self._closed = threading.Event()

    def open(self) -> None:
        self._supervisors.open()

    def close(self) -> None:
        self._closed.set()
        self._supervisors.close()

    def version(self) -> str:
        return engine_version(self._config)

    def limits(self) -> tuple[str, ...]:
        return own_limits()

    # --- how far a worker is

    def facts(self, entry: Entry) -> Facts:
        # In this order: what an ended thread or supervisor has written is then all there.
        preparing = self._preparing.get(entry.id)
        detail = preparing.detail if preparing is not None and preparing.is_alive() else None
        pulled = self._pulled.get(entry.id, "")
        running = self._supervisors.is_running(entry)
        facts = with_notes(entry, entry.facts())
        if facts.exit is not None:
            return facts
        if detail is not None and not facts.alive:
            return replace(facts, alive=True, state={**facts.state, "phase": "pulling", "detail": detail})
        if pulled:  # for a check, before anything is made
            return replace(facts, state={**facts.state, "detail": pulled})
        return replace(facts, alive=facts.alive or running)

    # --- what is done with it

    def prepare(self, entry: Entry) -> None:
        assignment = entry.assignment
        if assignment is None:
            raise NotPrepared(entry.flaw)
        if not assignment.image:
            raise NotPrepared(
                "No image is given, and the runtime docker starts nothing without one. Set `image`."
            )
        settings = launch_settings(self._config, self._places, entry, assignment)
        file_replace(entry.path / "launch", settings)
        preparing = Preparing(
            self._config,
            self._places,
            entry,
            assignment,
            images=self._images,
            supervisors=self._supervisors,
            address=self._address(),
            port_taken=self._port_taken,
            mesh=self._mesh,
        )
        self._preparing[entry.id] = preparing
        preparing.start()

    def start(self, entry: Entry) -> None:
        entry.order_write("start 0 0")

    def stop(self, entry: Entry) -> None:
        order_stop(entry, "stop")
        preparing = self._preparing.get(entry.id)
        if preparing is not None:
            preparing.stop()

    def fail(self, entry: Entry, kind: str) -> None:
        order_stop(entry, kind)

    def execute(
        self,
        entry: Entry,  # noqa: ARG002 - what the process has is asked of the process
        facts: Facts,
        command: Sequence[str],
        seconds: float,
        lifeline: Lifeline,
    ) -> Ran:
        return run_inside(_sandboxed(facts), command, seconds, lifeline)

    def try_out(self, entry: Entry, program: Program, lifeline: Lifeline) -> Ran:
        if entry.assignment is None:
            raise NotPrepared(entry.flaw)
        trial = Trial(self._config, entry, self._images, self._mesh, address=self._address())
        try:
            return trial.run(
                entry.assignment, program, lifeline, lambda text: self._pulled.update({entry.id: text})
            )
        finally:
            self._pulled.pop(entry.id, None)

    def addresses(self, entry: Entry) -> tuple[str, ...]:
        place = entry.assignment.mesh if entry.assignment else None
        return (str(place.address),) if place else ("127.0.0.1", "::1", self._address())

    # --- its end

    def clear(self, entry: Entry, facts: Facts) -> bool:  # noqa: ARG002 - the container has it all
        preparing = self._preparing.get(entry.id)
        if preparing is not None and preparing.is_alive():
            return False
        return not _may_have_container(entry) or self._remove(entry)

    def _remove(self, entry: Entry) -> bool:
        """False: the engine can't be asked now."""
        try:
            client = engine_client(self._config.docker_socket, self._config.name)
        except NotPrepared as error:
            log.warning("assignment %s: its container can't be removed: %s", entry.id, error)
            return False
        try:
            container_remove(client, entry.id)
        except (DockerException, RequestException) as error:
            log.warning("assignment %s: its container can't be removed: %s", entry.id, error)
            return False
        finally:
            client.close()
        secrets_forget(entry)
        return True

    def release(self, entry: Entry) -> None:
        self._preparing.pop(entry.id, None)
        self._supervisors.release(entry)
        if _may_have_container(entry):
            threading.Thread(
                target=self._remove_at_last, args=(entry,), name=f"remove-{entry.id}", daemon=True
            ).start()

    def _remove_at_last(self, entry: Entry) -> None:
        """An engine that is away, or busy with it, is asked again; what an ending agent leaves is swept by the next."""
        while not self._remove(entry) and not self._closed.wait(_AGAIN_SECONDS):
            pass

    def sweep(self, known: Collection[str]) -> None:
        """Once, when the console has told what this machine should be doing."""
        with self._lock:
            if self._swept:
                return
            self._swept = True
        threading.Thread(target=self._sweep, args=(frozenset(known),), name="sweep", daemon=True).start()

    def _sweep(self, known: Collection[str]) -> None:
        try:
            client = engine_client(self._config.docker_socket, self._config.name)
            try:
                self._remove_unknown(client, known)
            finally:
                client.close()
        except (NotPrepared, DockerException, RequestException) as error:
            log.warning("left-over containers can't be looked for: %s", error)
            self._swept = False

    def _remove_unknown(self, client: docker.DockerClient, known: Collection[str]) -> None:
        mine = {"label": f"{LABEL_AGENT}={self._config.state}"}
        for found in client.api.containers(all=True, filters=mine):
            name = found["Labels"].get(LABEL_ASSIGNMENT, "")
            if name not in known:
                log.info("a left-over container is removed assignment=%s", name)
                container_remove(client, name)

    # --- what is said of it

    def lost_because(self, entry: Entry) -> str:
        if entry.flaw:
            return entry.flaw
        if entry.boot_id() != self._places.boot_id:
            return "The machine was restarted while the worker ran."
        if said := entry.facts().state.get("lost"):
            return f"{said} Its container is removed."
        return "The worker's supervisor was killed, and the worker's container is removed."

    def explain(self, entry: Entry, message: str) -> str:  # noqa: ARG002 - the engine names what it means
        return explained(message, machine=self._config.name)


def _may_have_container(entry: Entry) -> bool:
    """Its own, or that of a check."""
    return any((entry.path / name).exists() for name in ("launch", "trial"))


def _sandboxed(facts: Facts) -> Sandboxed:
    """A command beside the worker's process 1 gets what that has. Raises OSError when it has ended."""
    pid = int(facts.state.get("child") or 0)
    process = Path("/proc") / str(pid)
    lines = (line.partition(":")[::2] for line in (process / "status").read_text().splitlines())
    status = {name: text.split() for name, text in lines}
    pairs = (
        os.fsdecode(text).partition("=")[::2] for text in (process / "environ").read_bytes().split(b"\0")
    )
    return Sandboxed(
        pid=pid,
        started=int(facts.state.get("child_started") or 0),
        environment={name: value for name, value in pairs if name},
        directory=str((process / "cwd").readlink()),
        user=(int(status["Uid"][0]), int(status["Gid"][0]), tuple(map(int, status["Groups"]))),
    )
