"""Fixtures of the console's core."""

import pytest

from machines.models import Machine
from tests import factories
from tests.support.console import credential_of
from tests.support.fixtures import *  # noqa: F403 - pytest finds fixtures by name, all of them are wanted


@pytest.fixture
def machine(house) -> Machine:
    """gpu-01, which has joined and was never heard."""
    return factories.machine_make(house, "gpu-01", gpus=2, seen=False)


@pytest.fixture
def credential(machine) -> str:
    return credential_of(machine)
