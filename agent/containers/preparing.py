"""Making a worker's container: its image, its files, the container itself, and the supervisor that keeps it."""

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException

from agent.config import Config
from agent.containers.drives import drives_hold
from agent.containers.engine import engine_client, engine_limits
from agent.containers.files import config_files, worker_owner, worker_secrets
from agent.containers.images import Images, Pulled, PullStopped
from agent.containers.network import mesh_network
from agent.containers.notes import MEMLOCK_NOTE, PULLED_NOTE, note_add
from agent.containers.settings import (
    UNLIMITED,
    Container,
    Limits,
    cdi_is_configured,
    container_name,
    container_request,
    trial_name,
)
from agent.devices import device_nodes
from agent.drives import drives_of
from agent.journal import Entry
from agent.launching import Places, Supervisors, common_settings, handed_over, settings_text
from agent.mesh.mesh import Mesh
from agent.network_drives import mount_places, mounts_of
from agent.runtime import NotPrepared
from agent.secrets import secret_variables
from agent.supervision.output import Pokes
from agent.supervision.processes import boottime
from wire.assignments import Assignment
from wire.quantities import format_size

log = logging.getLogger(__name__)


class Preparing(threading.Thread):
    """Of one worker. Ends with a supervisor launched, or with the exit recorded; then it pokes the agent."""

    def __init__(
        self,
        config: Config,
        places: Places,
        entry: Entry,
        assignment: Assignment,
        *,
        images: Images,
        supervisors: Supervisors,
        address: str,
        port_taken: Callable[[int], None],
        mesh: Mesh | None,
    ) -> None:
        super().__init__(name=f"prepare-{entry.id}", daemon=True)
        self._config = config
        self._places = places
        self._entry = entry
        self._assignment = assignment
        self._images = images
        self._supervisors = supervisors
        self._address = address
        self._port_taken = port_taken
        self._mesh = mesh
        self._lock = threading.Lock()
        self._pulling = True
        self._stopped = False
        self.detail = ""

    def stop(self) -> None:
        """A pull is given up at once; whatever is beyond it ends through its supervisor."""
        with self._lock:
            if self._pulling and not self._stopped:
                self._stopped = True
                self._entry.exit_write("stopped", "Stopped before it was started")

    def run(self) -> None:
        try:
            self._prepare()
        except PullStopped:
            log.info("assignment %s: stopped while its image was pulled", self._entry.id)
        except NotPrepared as error:
            self._give_up(str(error))
        except (DockerException, RequestException) as error:
            self._give_up(refused(self._config, error))
        except OSError as error:
            self._give_up(f"The worker can't be prepared: {error.strerror or error}")
        except Exception:
            log.exception("assignment %s: unexpected error while it was prepared", self._entry.id)
            self._give_up("The agent failed to prepare the worker; its own log says why.")
        finally:
            Pokes(str(self._places.events), self._entry.id).send("state")

    def _give_up(self, message: str) -> None:
        with self._lock, suppress(OSError):
            if not self._stopped:
                self._entry.exit_write("not_prepared", message)

    def _tell(self, detail: str) -> None:
        self.detail = detail

    def _prepare(self) -> None:
        limits = self._limits()
        pulled = self._images.have(
            self._assignment.image, self._assignment.registry, self._tell, lambda: self._stopped
        )
        if pulled.note:
            note_add(self._entry, PULLED_NOTE, pulled.note)
        with self._lock:
            if self._stopped:
                raise PullStopped
            self._pulling = False
        self.detail = "creating the container"
        self._create(pulled, limits)

    def _limits(self) -> Limits:
        limits = engine_limits(self._config)
        if limits.memlock == UNLIMITED:
            return limits
        most = format_size(limits.memlock)
        if self._assignment.rdma and not self._config.simulate:
            raise NotPrepared(
                f"The Docker engine of {self._config.name} can't give workers unlimited locked memory, which RDMA "
                f"needs (at most {most}). Set LimitMEMLOCK=infinity for docker.service and containerd.service there."
            )
        note_add(
            self._entry,
            MEMLOCK_NOTE,
            f"Locked memory is limited to {most}: the Docker engine of {self._config.name} can't raise it",
        )
        return limits

    def _create(self, pulled: Pulled, limits: Limits) -> None:
        assignment, entry = self._assignment, self._entry
        if not assignment.command and not _has_command(pulled):
            raise NotPrepared(f"The image {assignment.image} has no command of its own. Set `command`.")
        with ExitStack() as stack:
            held = stack.enter_context(handed_over(assignment, self._config.name, self._port_taken))
            client = engine_client(self._config.docker_socket, self._config.name)
            stack.callback(client.close)
            request = container_request(self._container(client, pulled, limits))
            container_remove(client, entry.id)
            client.api.create_container_from_config(request, container_name(entry.id))  # type: ignore[no-untyped-call]
            self._supervisors.launch(entry, held)

    def _container(self, client: docker.DockerClient, pulled: Pulled, limits: Limits) -> Container:
        config, assignment = self._config, self._assignment
        owner = worker_owner(assignment, pulled.image)
        surroundings = surroundings_of(config, assignment, client, limits, self._mesh)
        return replace(
            surroundings,
            assignment_id=self._entry.id,
            files=[
                *config_files(self._entry, assignment, owner, machine=config.name, address=self._address),
                *worker_secrets(self._entry, assignment, owner),
            ],
            drives=drives_hold(
                config,
                drives_of(config, assignment, mount_places(config, assignment)),
                mounts_of(config, self._entry.id),
            ),
            variables={**assignment.env, **secret_variables(assignment)},
        )


def surroundings_of(
    config: Config, assignment: Assignment, client: docker.DockerClient, limits: Limits, mesh: Mesh | None
) -> Container:
    """What a container of the assignment's has whatever it runs: devices, network, limits. Raises NotPrepared."""
    passed = config.simulate is None or config.device_root is not None
    return Container(
        assignment=assignment,
        assignment_id="",
        agent=str(config.state),
        machine=config.name,
        files=(),
        drives=(),
        variables=assignment.env,
        devices=_devices(assignment, Path(config.device_root or "/")) if passed else {},
        gpus=assignment.gpu_uuids if passed else (),
        cdi=cdi_is_configured(client.info().get("CDISpecDirs") or ()),
        limits=limits,
        network=mesh_network(client, mesh, assignment.mesh) if assignment.mesh else "host",
    )


def launch_settings(config: Config, places: Places, entry: Entry, assignment: Assignment) -> bytes:
    """Written before anything is made: from then on there may be a container. Raises NotPrepared."""
    own: dict[str, object] = {
        "engine": config.docker_socket,
        "container": container_name(entry.id),
        "drives": mounts_of(config, entry.id),
        "begun": boottime(),
    }
    return settings_text({**common_settings(places, entry, assignment), **own})


def container_remove(client: docker.DockerClient, assignment_id: str) -> None:
    """With everything that runs in it, and that of a check beside it; there may be none."""
    for name in (container_name(assignment_id), trial_name(assignment_id)):
        with suppress(NotFound):
            client.api.remove_container(name, force=True, v=True)


def _devices(assignment: Assignment, root: Path) -> dict[str, str]:
    """GPUs come by the engine's own device requests."""
    nodes = device_nodes(gpu_uuids=(), rdma=assignment.rdma, imex=assignment.imex, root=root)
    found = {str(root / node.lstrip("/")): node for node in nodes}
    return {source: path for source, path in found.items() if Path(source).is_char_device()}


def _has_command(pulled: Pulled) -> bool:
    settings: dict[str, Any] = pulled.image.get("Config") or {}
    return bool(settings.get("Cmd") or settings.get("Entrypoint"))


def refused(config: Config, error: Exception) -> str:
    words = str(error.explanation or error) if isinstance(error, APIError) else str(error)
    return f"The Docker engine of {config.name} refuses the container: {words}"
