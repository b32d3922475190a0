"""Fixtures of the console's core."""

import pytest

from tests import factories
from tests.support.fixtures import *  # noqa: F403 - pytest finds fixtures by name, all of them are wanted


@pytest.fixture
def three(house):
    """gpu-01 to gpu-03: 8 H100s each, one rack, one fabric."""
    return [factories.machine_make(house, f"gpu-0{number}") for number in (1, 2, 3)]
