"""Which agents are older than the one that comes with this console."""

from agent import VERSION

CURRENT = VERSION


def agent_is_old(version: str) -> bool:
    """False for what is no version of ours: nothing can be said of it."""
    numbers, current = _numbers(version), _numbers(CURRENT)
    return bool(numbers) and numbers < current


def _numbers(version: str) -> tuple[int, ...]:
    """`0.1.0` → (0, 1, 0); empty for anything else. What follows a "+" or "-" says nothing of age."""
    parts = version.partition("+")[0].partition("-")[0].split(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):  # noqa: PLR2004 - digits
        return ()
    return tuple(map(int, parts))
