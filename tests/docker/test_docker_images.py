"""Pulls: with and without a credential, and every way in which one fails, each with its reason."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agents import AgentProcess, eventually
from tests.agent.fake_console import FakeConsole
from tests.docker.engine import Engine
from tests.docker.machines import contained, containers, join_docker
from tests.docker.registry import PASSWORD, USER, Stalling
from wire.assignments import Preflight, RegistryLogin

pytestmark = pytest.mark.docker

ALONE = Preflight(kind="links", machines=("gpu-01",), rank=0, address="127.0.0.1", port=1, token="t")


@pytest.fixture
def agent(console: FakeConsole, engine: Engine, tmp_path: Path) -> Iterator[AgentProcess]:
    agent = join_docker(AgentProcess(console, tmp_path / "state"), engine).start()
    yield agent
    agent.clean()


def login(password: str = PASSWORD) -> RegistryLogin:
    return RegistryLogin(name="ngc", registry="127.0.0.1:5000", username=USER, password=password)


def test_pulls_and_the_reasons_why_they_fail(console, agent, engine, registries) -> None:
    registry = registries(guarded=True)
    missing = registry.image.replace(":1", ":2")
    console.want(
        contained("nobody", image=registry.image, phase="prepare"),
        contained("wrong", image=registry.image, phase="prepare", registry=login("guessed-password")),
        contained("missing", image=missing, phase="prepare", registry=login()),
    )
    said = {name: console.wait_gone(name, seconds=60).exit for name in ("nobody", "wrong", "missing")}
    assert {name: end.kind for name, end in said.items()} == dict.fromkeys(said, "not_prepared")
    assert said["nobody"].message == (
        f"The image {registry.image} can't be pulled on gpu-01: the registry asks for a sign-in. "
        "Name a `registry_credential` in the run."
    )
    assert said["wrong"].message == (
        f"The image {registry.image} can't be pulled on gpu-01: the registry refuses the credential ngc "
        "(user puller). An admin changes it on the Workspace page."
    )
    assert said["missing"].message == (
        f"The image {missing} can't be pulled on gpu-01: the registry has no such image or tag. "
        "Check `image` in the run."
    )

    console.want(contained("a1", image=registry.image, phase="prepare", registry=login()))
    report = console.wait_state("a1", "ready", seconds=60)
    [pulled] = [note.text for note in report.notes if note.text.startswith("Image pulled")]
    assert pulled.startswith("Image pulled, 4 MiB in ")
    # It is here now; another workspace's run still has to show that it may have it.
    console.want(contained("other", image=registry.image, phase="prepare"))
    assert "asks for a sign-in" in console.wait_gone("other", seconds=60).exit.message
    eventually(lambda: containers(engine) == [], "no container", 30)
    assert PASSWORD not in "".join(path.read_text(errors="replace") for path in agent.state.rglob("*.json"))


def test_pulls_that_are_stopped_while_they_stall_and_a_registry_that_is_gone(
    console, agent, engine, registries
) -> None:
    registry = registries()
    with Stalling(engine.space, registry.port, port=5900) as stalling:
        image = registry.image.replace(registry.host, stalling.host)
        for name, preflight in (("a0", ALONE), ("a1", None)):
            job = contained(name, image=image, phase="prepare", preflight=preflight)
            console.want(job)
            console.wait(lambda name=name: "pulling image" in _detail(console, name), "it is pulled", 30)
            if preflight:
                stalling.wait()
            console.want(job.model_copy(update={"phase": "stop"}))
            assert console.wait_gone(name, seconds=30).exit.message == "Stopped before it was started"
    checked = contained("a3", image=image, phase="prepare", preflight=ALONE)
    console.want(contained("a2", image=image, phase="prepare"), checked)
    for name in ("a2", "a3"):
        end = console.wait_gone(name, seconds=120).exit
        assert end.kind == "not_prepared"
        assert end.message.startswith(f"The image {image} can't be pulled on gpu-01: ")
    eventually(lambda: containers(engine) == [], "no container", 30)


def _detail(console: FakeConsole, name: str) -> str:
    report = console.report(name)
    return report.detail if report else ""


def test_an_image_that_a_check_has_pulled_is_in_the_workers_history(
    console, agent, engine, registries
) -> None:
    """It has nothing to execute, so that the check fails."""
    image = registries().image
    console.want(contained("a1", image=image, phase="prepare", preflight=ALONE))
    report = console.wait_gone("a1", seconds=60)
    assert report.exit.kind in ("not_prepared", "preflight_failed")
    [pulled] = [note.text for note in report.notes if note.text.startswith("Image pulled")]
    assert pulled.startswith("Image pulled, 4 MiB in ")
