"""A fake console and two ways to call `astra`: in this process, and as people do."""

import os
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.astra.fake_server import ROOT, TOKEN, FakeConsole


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    with FakeConsole() as fake:
        yield fake


@pytest.fixture
def environ(console: FakeConsole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of somebody who is signed in to the fake console."""
    variables = {
        "ASTRAEUS_SERVER": console.url,
        "ASTRAEUS_TOKEN": TOKEN,
        "ASTRAEUS_WORKSPACE": "acme/vision",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "NO_PROXY": "*",
        "TZ": "UTC",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    time.tzset()
    return variables


@pytest.fixture
def astra(environ: dict[str, str]) -> Callable[..., Any]:
    """Calls `astra WORDS…` in this process; the result has exit_code, stdout and stderr."""
    from astra.app import app

    def call(*words: str, input: str | bytes | None = None) -> Any:  # noqa: A002 - as CliRunner names it
        return CliRunner().invoke(app, words, input=input, catch_exceptions=False, prog_name="astra")

    return call


@pytest.fixture
def command(environ: dict[str, str]) -> list[str]:
    """The words that start `astra` as a process of its own; they begin every subprocess of a test."""
    return [sys.executable, "-m", "astra"]


@pytest.fixture
def start(command: list[str], environ: dict[str, str]) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts `astra WORDS…` with pipes; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*words: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [*command, *words],
            cwd=ROOT,
            env=os.environ | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


class Terminal:
    """`astra` on a pseudo terminal of 24 lines and 80 columns."""

    def __init__(self, words: list[str], environ: dict[str, str]) -> None:
        self._end, other = os.openpty()
        termios.tcsetwinsize(other, (24, 80))
        self.process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=os.environ | environ,
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)
        self.shown = b""

    def read_until(self, text: bytes, seconds: float = 10) -> bytes:
        """All that was shown so far, once it contains `text`."""
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            ready, _, _ = select.select([self._end], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"{text!r} is not in {self.shown!r}"
            self.shown += os.read(self._end, 65536)
        return self.shown

    def read_all(self) -> bytes:
        """All that was shown, once the process has ended."""
        while True:
            try:
                data = os.read(self._end, 65536)
            except OSError:  # Linux says EIO when nobody holds the other side any more
                return self.shown
            self.shown += data

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._end)


@pytest.fixture
def terminal(command: list[str], environ: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    """Starts `astra WORDS…` on a terminal; keyword arguments are more variables."""
    opened: list[Terminal] = []

    def begin(*words: str, **variables: str) -> Terminal:
        opened.append(Terminal([*command, *words], environ | {"TERM": "xterm"} | variables))
        return opened[-1]

    yield begin
    for each in opened:
        each.close()
