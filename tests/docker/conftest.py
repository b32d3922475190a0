"""Real Docker engines in network namespaces. Everything started here is ended here, by pid."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.fake_console import FakeConsole
from tests.docker.engine import Engine
from tests.docker.needs import why_not
from tests.docker.registry import Registry
from tests.docker.spaces import Site, Space


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where no engine can run, tests with the mark `docker` are left out, and the end of the output says why."""
    reason = why_not() if any(item.get_closest_marker("docker") for item in items) else ""
    if reason:
        left_out = [item for item in items if item.get_closest_marker("docker")]
        items[:] = [item for item in items if not item.get_closest_marker("docker")]
        config.hook.pytest_deselected(items=left_out)
        config.stash[_LEFT_OUT] = f"{len(left_out)} tests of Docker engines were not run: {reason}."


_LEFT_OUT = pytest.StashKey[str]()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    if said := config.stash.get(_LEFT_OUT, ""):
        terminalreporter.write_sep("=", said, yellow=True)


@pytest.fixture
def engine(shared_engine: Engine) -> Iterator[Engine]:
    """For tests that neither kill nor restart it, with the tests' image; no container of a test outlives it."""
    yield shared_engine
    shared_engine.remove_containers()


@pytest.fixture(scope="session")
def shared_engine() -> Iterator[Engine]:
    space = Space().open()
    engine = Engine(space)
    try:
        yield engine.start().load()
    finally:
        engine.stop()
        space.close()


@pytest.fixture
def engine_to_kill() -> Iterator[Engine]:
    """One that the test may kill and start again, with the tests' image."""
    space = Space().open()
    engine = Engine(space)
    try:
        yield engine.start().load()
    finally:
        engine.stop()
        space.close()


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    console = FakeConsole().start()
    yield console
    console.stop()


@pytest.fixture
def site() -> Iterator[Site]:
    """A switch to which the test adds machines."""
    site = Site().open()
    yield site
    site.close()


@pytest.fixture
def registries(engine: Engine, tmp_path: Path) -> Iterator[Callable[..., Registry]]:
    """Makes registries that `engine` reaches; they hold their `image`."""
    made: list[Registry] = []

    def make(**settings: object) -> Registry:
        directory = tmp_path / f"registry-{len(made)}"
        directory.mkdir()
        registry = Registry(engine.space, directory, port=5000 + len(made), **settings)  # type: ignore[arg-type]
        made.append(registry.start())
        registry.push(engine)
        return registry

    yield make
    for registry in made:
        registry.stop()
