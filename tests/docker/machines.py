"""An agent whose workers are containers of a test's engine, and what tests ask of both."""

from typing import Any

from docker.errors import NotFound

from tests.agent.agents import AgentProcess, worker
from tests.docker.engine import Engine
from tests.docker.image import IMAGE
from wire.assignments import Assignment


def contained(name: str = "a1", script: str = "true", **more: Any) -> Assignment:
    """An assignment that runs a bash script in a container of the tests' image."""
    return worker(name, script, **({"image": IMAGE, "memory_bytes": 1 << 30, "shm_bytes": 1 << 26} | more))


def container_of(engine: Engine, name: str) -> dict[str, Any] | None:
    """As `docker inspect` shows it; None when there is none."""
    client = engine.client()
    try:
        found: dict[str, Any] = client.api.inspect_container(f"astraeus-{name}")
    except NotFound:
        return None
    finally:
        client.close()
    return found


def containers(engine: Engine) -> list[str]:
    """Names of all, ended ones too."""
    client = engine.client()
    try:
        return sorted(found["Names"][0].lstrip("/") for found in client.api.containers(all=True))
    finally:
        client.close()


def join_docker(agent: AgentProcess, engine: Engine, **more: Any) -> AgentProcess:
    socket = engine.url.removeprefix("unix://")
    return agent.join(runtime="docker", docker_socket=socket, **more)
