"""Waiting times after failures: 0.2 s doubling to 15 s, spread so that a fleet doesn't come back in step."""

import random

SHORTEST = 0.2
LONGEST = 15.0
LONGEST_ASKED = 300.0


class Backoff:
    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()  # noqa: S311 - no secret depends on it
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next(self, asked: float | None = None) -> float:
        """Seconds to wait now. `asked` is the console's Retry-After, which is honoured."""
        ceiling = min(LONGEST, SHORTEST * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        wait = self._rng.uniform(max(SHORTEST, ceiling / 2), ceiling)
        return wait if asked is None else min(LONGEST_ASKED, asked) + self._rng.uniform(0, 1) * min(1, asked)
