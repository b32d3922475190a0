"""Fixtures of the recipes' pages: a console to submit their documents to."""

from tests.support.fixtures import *  # noqa: F403 - pytest finds fixtures by name, all of them are wanted
