"""Images on this machine: pulled when they are missing, each once at a time, with what has come of it so far."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from agent.runtime import NotPrepared
from wire.agent_messages import IMAGE_PULLED
from wire.assignments import RegistryLogin
from wire.quantities import format_duration, format_size

Tell = Callable[[str], None]
Stopped = Callable[[], bool]
_WAIT_SECONDS = 0.2
_DIGEST = "@"


class PullStopped(Exception):
    """Nobody wants the image any more."""


@dataclass(frozen=True)
class Pulled:
    image: Mapping[str, Any]
    """As `docker image inspect` shows it."""
    note: str = ""
    """For the worker's History; empty when the image was there."""


@dataclass
class _Layers:
    """What `docker pull` tells of its layers: id → (bytes here, bytes in all)."""

    known: dict[str, tuple[int, int]] = field(default_factory=dict)

    def take(self, line: Mapping[str, Any]) -> None:
        detail, layer = line.get("progressDetail") or {}, str(line.get("id", ""))
        if line.get("status") == "Downloading" and detail.get("total"):
            self.known[layer] = (int(detail.get("current", 0)), int(detail["total"]))
        elif line.get("status") in ("Download complete", "Pull complete") and layer in self.known:
            self.known[layer] = (self.known[layer][1],) * 2

    def text(self) -> str:
        here, total = (sum(layer[number] for layer in self.known.values()) for number in (0, 1))
        return f"pulling image, {format_size(here)} of {format_size(total)}" if total else "pulling image"


class Images:
    """Safe to use from several threads."""

    def __init__(self, client: Callable[[], docker.DockerClient], machine: str) -> None:
        self._client = client
        self._machine = machine
        self._lock = threading.Lock()
        self._pulls: dict[str, threading.Lock] = {}
        self._private: set[str] = set()

    def have(self, image: str, login: RegistryLogin | None, tell: Tell, stopped: Stopped) -> Pulled:
        """The image, pulled if need be. Raises NotPrepared with the reason, and PullStopped.

        One that is here is taken as it is, unless it is called `latest` or was pulled with a credential: another
        workspace's run, too, has to show that it may have it.
        """
        with self._alone(image, tell, stopped), self._engine() as client:
            found = _inspect(client, image)
            if found is not None and not self._must_ask(image):
                return Pulled(found)
            return self._pull(client, image, login, tell, stopped)

    def _must_ask(self, image: str) -> bool:
        return image in self._private or _tag(image) == "latest"

    @contextmanager
    def _engine(self) -> Iterator[docker.DockerClient]:
        client = self._client()
        try:
            yield client
        finally:
            client.close()

    @contextmanager
    def _alone(self, image: str, tell: Tell, stopped: Stopped) -> Iterator[None]:
        """Two workers that need the same image pull it once: the second finds it here."""
        with self._lock:
            lock = self._pulls.setdefault(image, threading.Lock())
        while not lock.acquire(timeout=_WAIT_SECONDS):
            tell("another worker's run pulls the image")
            if stopped():
                raise PullStopped
        try:
            yield
        finally:
            lock.release()

    def _pull(
        self,
        client: docker.DockerClient,
        image: str,
        login: RegistryLogin | None,
        tell: Tell,
        stopped: Stopped,
    ) -> Pulled:
        begun, layers = time.monotonic(), _Layers()
        tell(layers.text())
        try:
            for line in _heard(partial(_lines, client, image, login), stopped):
                if "error" in line:
                    raise NotPrepared(self._reason(image, login, str(line["error"])))
                layers.take(line)
                tell(layers.text())
            found = _inspect(client, image)
        except (DockerException, RequestException, HTTPError) as error:
            raise NotPrepared(self._reason(image, login, _words(error))) from error
        if found is None:
            raise NotPrepared(f"The image {image} was pulled on {self._machine}, but is not there.")
        if login is not None:
            self._private.add(image)
        return Pulled(found, _note(layers, time.monotonic() - begun))

    def _reason(self, image: str, login: RegistryLogin | None, said: str) -> str:
        head = f"The image {image} can't be pulled on {self._machine}"
        small = said.lower()
        if any(
            word in small for word in ("unauthorized", "denied", "authentication required", "no basic auth")
        ):
            return f"{head}: {_refused(login)}"
        if "manifest unknown" in small or "not found" in small or "name unknown" in small:
            return f"{head}: the registry has no such image or tag. Check `image` in the run."
        return f"{head}: {said}"


def _refused(login: RegistryLogin | None) -> str:
    if login is None:
        return "the registry asks for a sign-in. Name a `registry_credential` in the run."
    return (
        f"the registry refuses the credential {login.name} (user {login.username}). An admin changes it on the "
        "Workspace page."
    )


def _lines(
    client: docker.DockerClient, image: str, login: RegistryLogin | None
) -> Iterator[Mapping[str, Any]]:
    given = {"username": login.username, "password": login.password or ""} if login else None
    repository, tag = _split(image)
    lines: Iterator[Mapping[str, Any]] = client.api.pull(
        repository, tag=tag, stream=True, decode=True, auth_config=given
    )
    return lines


def _heard(pull: Callable[[], Iterator[Mapping[str, Any]]], stopped: Stopped) -> Iterator[Mapping[str, Any]]:
    """The lines as they come, until the last one. Raises PullStopped, also while none comes: a registry that has
    stalled says nothing for minutes, and its pull is then left to a thread that ends with the next line."""
    heard: SimpleQueue[Mapping[str, Any] | Exception | None] = SimpleQueue()
    left = threading.Event()

    def hear() -> None:
        try:
            for line in pull():
                if left.is_set():
                    return
                heard.put(line)
            heard.put(None)
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            heard.put(error)

    threading.Thread(target=hear, name="pull", daemon=True).start()
    try:
        while not stopped():
            try:
                line = heard.get(timeout=_WAIT_SECONDS)
            except Empty:
                continue
            if line is None:
                return
            if isinstance(line, Exception):
                raise line
            yield line
        raise PullStopped
    finally:
        left.set()


def _split(image: str) -> tuple[str, str]:
    """Repository, and tag or digest."""
    if _DIGEST in image:
        repository, _, digest = image.partition(_DIGEST)
        return repository, digest
    return image.removesuffix(f":{_tag(image)}"), _tag(image)


def _tag(image: str) -> str:
    """Empty for an image named by its digest: that never changes."""
    if _DIGEST in image:
        return ""
    return image.rpartition("/")[2].partition(":")[2] or "latest"


def _inspect(client: docker.DockerClient, image: str) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = client.api.inspect_image(image)  # type: ignore[no-untyped-call]
    except ImageNotFound:
        return None
    return found


def _words(error: Exception) -> str:
    """What the engine or the network says, without an address of a Python object."""
    if isinstance(error, APIError):
        return str(error.explanation or error)
    if isinstance(error, DockerException):
        return str(error)
    return "the Docker engine ended, or said nothing for too long"


def _note(layers: _Layers, seconds: float) -> str:
    total = sum(total for _, total in layers.known.values())
    size = f", {format_size(total)}" if total else ""
    return f"{IMAGE_PULLED}{size} in {format_duration(max(1, round(seconds)))}"
