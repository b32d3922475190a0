"""Fixtures of the console's core."""

from tests.support.fixtures import *  # noqa: F403 - pytest finds fixtures by name, all of them are wanted
