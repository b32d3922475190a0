"""What the other tests here stand on: an engine, the image, a registry that asks for a password."""

import pytest
from docker.errors import ImageNotFound

from tests.docker.engine import Engine
from tests.docker.image import IMAGE
from tests.docker.registry import PASSWORD, USER

pytestmark = pytest.mark.docker


def test_the_image_has_a_shell_and_python(engine: Engine) -> None:
    client = engine.client()
    command = ["bash", "-c", "python3 -c 'import ssl, socket; print(6 * 7)' && id -un && ls / | grep -c ."]
    said = client.containers.run(IMAGE, command, remove=True, network_mode="none", user="trainer")
    assert said.decode().splitlines()[:2] == ["42", "trainer"]
    client.close()


def test_a_guarded_registry_gives_its_image_to_those_who_know_the_password(engine, registries) -> None:
    registry = registries(guarded=True)
    client = engine.client()
    repository, _, tag = registry.image.rpartition(":")
    with pytest.raises(ImageNotFound):
        client.images.get(registry.image)
    login = {"username": USER, "password": PASSWORD}
    assert client.images.pull(repository, tag, auth_config=login).tags == [registry.image]
    client.images.remove(registry.image)
    client.close()
