"""A container's supervisor and an engine that goes away at the worst moment, or is late to notice an end."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.supervision import container
from agent.supervision.container import ContainerSupervisor
from agent.supervision.processes import boottime


@contextmanager
def attached_engine(path: Path, then: Callable[[socket.socket], None]) -> Iterator[Path]:
    """One that takes an attachment, and does `then` with its listener, before both are closed."""
    listener = socket.create_server(str(path), family=socket.AF_UNIX)

    def serve() -> None:
        attached, _ = listener.accept()
        attached.recv(4096)
        attached.sendall(b"HTTP/1.1 101 UPGRADED\r\n\r\n")
        then(listener)
        listener.close()
        attached.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield path
    thread.join(20)


def gone_at_the_start(listener: socket.socket) -> None:
    started, _ = listener.accept()
    assert started.recv(4096).startswith(b"POST /containers/c/start ")
    listener.close()
    started.close()


def slow_to_notice(states: list[dict[str, Any]]) -> Callable[[socket.socket], None]:
    """It starts the container, and tells the next of `states` each time that it is asked."""

    def serve(listener: socket.socket) -> None:
        answer(listener, "POST /containers/c/start ", b"")
        for state in states:
            answer(listener, "GET /containers/c/json ", json.dumps({"State": state}).encode())

    return serve


def answer(listener: socket.socket, expected: str, body: bytes) -> None:
    asked, _ = listener.accept()
    assert asked.recv(4096).startswith(expected.encode())
    asked.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
    asked.close()


def supervise(engine: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole life of a worker that is told to start before anything else."""
    monkeypatch.chdir(directory)
    os.mkfifo("control")
    Path("order").write_text("start 0 0")
    names = ("drives", "stop_signal", "stop_grace", "time_limit", "warn", "cut_off")
    settings = {**dict.fromkeys(names, ""), "id": "a1", "events": str(directory / "events")}
    ContainerSupervisor(
        {**settings, "engine": str(engine), "container": "c", "begun": str(boottime())}, {}
    ).run()


def test_an_engine_that_stays_away_while_it_starts_the_container_loses_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_AWAY_SECONDS", 0.2)
    with attached_engine(tmp_path / "docker.sock", gone_at_the_start) as engine:
        supervise(engine, tmp_path, monkeypatch)
    assert Path("started").exists()
    assert not Path("exit.json").exists(), "it may run: nobody may take it for gone"
    assert json.loads(Path("state.json").read_text())["lost"] == (
        "The Docker engine ended while it started the worker, and stayed away: whether it runs isn't known."
    )


def test_a_command_that_ended_before_the_engine_noticed_has_its_exit_code_and_not_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    running = {"Running": True, "Pid": ended.pid, "ExitCode": 0, "OOMKilled": False}
    noticed = {"Running": False, "Pid": 0, "ExitCode": 3, "OOMKilled": False}
    late = slow_to_notice([running, running, running, noticed])
    with attached_engine(tmp_path / "docker.sock", late) as engine:
        supervise(engine, tmp_path, monkeypatch)
    exit_ = json.loads(Path("exit.json").read_text())
    assert (exit_["kind"], exit_["code"]) == ("exited", 3)
