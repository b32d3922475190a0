"""Fixtures of the console's core."""

import pytest

from machines.models import Machine
from runs.models import Assignment
from tests import factories
from tests.support.console import bearer, credential_of
from tests.support.fixtures import *  # noqa: F403 - pytest finds fixtures by name, all of them are wanted
from tests.support.gangs import Gang, placed


@pytest.fixture
def machine(house) -> Machine:
    """gpu-01, which has joined and was never heard."""
    return factories.machine_make(house, "gpu-01", gpus=2, seen=False)


@pytest.fixture
def credential(machine) -> str:
    return credential_of(machine)


@pytest.fixture
def solo(house) -> Gang:
    """A run of one worker, running."""
    factories.machine_make(house, "gpu-01")
    return placed(house, "solo", machines=1, on_failure="RestartJob").start()


@pytest.fixture
def worker(solo: Gang) -> Assignment:
    return solo.members[0]


@pytest.fixture
def token(house) -> dict[str, str]:
    return bearer(house)
