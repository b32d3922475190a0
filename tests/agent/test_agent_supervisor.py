"""The supervisor by itself, with a bubblewrap that does what a test needs it to do."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agents import ROOT, alive, eventually

pytestmark = pytest.mark.processes

SLOW = """#!/usr/bin/env python3
# A bubblewrap that has made process 1, and takes its time to say so.
import os, signal, time
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open("child", "w") as file:
        file.write(str(os.getpid()))
    os.rename("child", "child.pid")
    time.sleep(3600)
time.sleep(3600)
"""

DISGUISED = """#!/bin/bash
# A bubblewrap whose command, once started, looks as if it still waited for its start.
if [ -e started-anew ]; then while :; do sleep 0.1; done; fi
(
  head -c 1 <&11 >/dev/null
  : >started-anew
  exec -a /bin/bash /bin/dash "$0" "$@"
) 13>&- &
echo "{\\"child-pid\\": $!}" >&10
exec 13>&-
wait
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An assignment's directory as the agent leaves it for the supervisor."""
    (tmp_path / "bwrap").write_text(SLOW)
    (tmp_path / "bwrap").chmod(0o755)
    settings = {
        "id": "a1",
        "events": tmp_path / "events",
        "heard": tmp_path / "heard",
        "bwrap": tmp_path / "bwrap",
        "files": 0,
        "uid": "",
        "time_limit": "",
        "cut_off": "",
    }
    (tmp_path / "launch").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    (tmp_path / "order").write_text("wait 0 0")
    for name in ("sandbox.args", "command.args"):
        (tmp_path / name).write_bytes(b"")
    for name in ("control", "gate"):
        os.mkfifo(tmp_path / name)
    return tmp_path


@contextlib.contextmanager
def supervised(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-S", str(ROOT / "agent" / "supervisor.py"), str(directory)]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def phase(directory: Path) -> str:
    try:
        return str(json.loads((directory / "state.json").read_text())["phase"])
    except FileNotFoundError:
        return ""


def child_of(directory: Path) -> int:
    eventually((directory / "child.pid").exists, "process 1 is there")
    return int((directory / "child.pid").read_text())


def stop(directory: Path) -> None:
    (directory / "order").write_text("stop 15 30")
    with (directory / "control").open("wb") as control:
        control.write(b"x")


def test_a_command_that_is_disguised_as_waiting_is_stopped_all_the_same(directory: Path) -> None:
    (directory / "bwrap").write_text(DISGUISED)
    (directory / "order").write_text("start 0 0")
    with supervised(directory) as supervisor:
        eventually((directory / "started-anew").exists, "the command runs")
        eventually(lambda: phase(directory) == "running", "the supervisor has seen it")
        stop(directory)

        assert supervisor.wait(15) == 0
    assert json.loads((directory / "exit.json").read_text())["kind"] == "stopped"


def test_a_stop_before_the_sandbox_is_known_leaves_no_process_behind(directory: Path) -> None:
    with supervised(directory) as supervisor:
        child = child_of(directory)
        stop(directory)

        assert supervisor.wait(15) == 0
    assert not alive(child)
    assert json.loads((directory / "exit.json").read_text())["kind"] == "stopped"


def test_a_killed_bubblewrap_leaves_no_process_behind(directory: Path) -> None:
    with supervised(directory) as supervisor:
        child = child_of(directory)
        children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text()
        [bubblewrap] = map(int, children.split())
        os.kill(bubblewrap, signal.SIGKILL)

        assert supervisor.wait(15) == 0
    assert not alive(child)
    assert json.loads((directory / "exit.json").read_text())["kind"] == "not_prepared"
