"""Fixtures of the console's core."""

from tests.support.fixtures import (
    api,
    bea,
    empty_redis,
    gang,
    house,
    machines,
    running,
    static_root,
)

__all__ = [
    "api",
    "bea",
    "empty_redis",
    "gang",
    "house",
    "machines",
    "running",
    "static_root",
]
