"""Real agents and real sandboxes against the fake console. Everything started here is ended here, by pid."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agents import AgentProcess
from tests.agent.fake_console import FakeConsole


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    console = FakeConsole().start()
    yield console
    console.stop()


@pytest.fixture
def agent(console: FakeConsole, tmp_path: Path) -> Iterator[AgentProcess]:
    agent = AgentProcess(console, tmp_path / "state").join().start()
    yield agent
    agent.clean()
