"""A container's supervisor and an engine that goes away at the worst moment, and stays away."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.supervision import container
from agent.supervision.container import ContainerSupervisor
from agent.supervision.processes import boottime


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Path]:
    """One that takes an attachment, and is gone for good as soon as it is told to start the container."""
    path = tmp_path / "docker.sock"
    listener = socket.create_server(str(path), family=socket.AF_UNIX)

    def serve() -> None:
        attached, _ = listener.accept()
        attached.recv(4096)
        attached.sendall(b"HTTP/1.1 101 UPGRADED\r\n\r\n")
        started, _ = listener.accept()
        assert started.recv(4096).startswith(b"POST /containers/c/start ")
        for each in (listener, started, attached):
            each.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield path
    thread.join(20)


def test_an_engine_that_stays_away_while_it_starts_the_container_loses_the_worker(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(container, "_AWAY_SECONDS", 0.2)
    os.mkfifo("control")
    Path("order").write_text("start 0 0")
    names = ("drives", "stop_signal", "stop_grace", "time_limit", "warn", "cut_off")
    settings = {**dict.fromkeys(names, ""), "id": "a1", "events": str(tmp_path / "events")}
    ContainerSupervisor(
        {**settings, "engine": str(engine), "container": "c", "begun": str(boottime())}, {}
    ).run()
    assert Path("started").exists()
    assert not Path("exit.json").exists(), "it may run: nobody may take it for gone"
    assert json.loads(Path("state.json").read_text())["lost"] == (
        "The Docker engine ended while it started the worker, and stayed away: whether it runs isn't known."
    )
