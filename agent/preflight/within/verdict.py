"""What the members' figures mean, and whose fault it is. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.preflight.within.answers import Json, failed, passed

Results = dict[int, Json]
"""By rank: what a machine's processes have measured, {"gbytes", "pairs"}, or {"error"}. Who left is not in it."""
_OF_OTHERS = re.compile(
    r"timed? ?out|timeout|closed|reset|remote|peer|broken pipe|aborted|refused|given up", re.IGNORECASE
)
"""What a process says when it is another one that has failed."""
_TWO = 2


def neighbours(machines: int) -> list[tuple[int, int]]:
    """A ring's pairs, each once."""
    return [(0, 1)] if machines == _TWO else [(each, (each + 1) % machines) for each in range(machines)]


def processes_of(machine: int, shares: Sequence[int]) -> range:
    first = sum(shares[:machine])
    return range(first, first + shares[machine])


def verdict_of(
    machines: Sequence[str], results: Results, shares: Sequence[int], floor: float | None, noun: str
) -> Json:
    """One verdict for all members."""
    there = {rank: result for rank, result in results.items() if result is not None}
    errors = {
        machines[rank]: str(result["error"]) for rank, result in sorted(there.items()) if "error" in result
    }
    own = {machine: text for machine, text in errors.items() if not _OF_OTHERS.search(text)}
    gone = [machine for rank, machine in enumerate(machines) if rank not in results]
    if gone and not own:
        return failed(f"{', '.join(gone)} left the check", gone)
    if errors:
        blamed = own or errors
        return failed("; ".join(f"{machine}: {text}" for machine, text in blamed.items()), list(blamed))
    if sum(shares) == 1:
        return passed(f"one of the {noun}, which has nobody to reduce with")
    gbytes = min(result["gbytes"] for result in results.values())
    over = f"over {sum(shares)} {noun} on {len(shares)} machine{'' if len(shares) == 1 else 's'}"
    found = f"{gbytes:.3g} GB/s bus bandwidth {over}"
    expected = f", at least {floor:.3g} GB/s expected" if floor else ""
    if floor is None or gbytes >= floor:
        return passed(found + expected)
    slow = [machines[each] for each in slow_machines(list(results.values()), floor, len(shares))]
    return failed(f"{found}{expected}; slow: {', '.join(slow)}", slow)


def slow_machines(results: Sequence[Json], floor: float, count: int) -> list[int]:
    """Those all of whose pairs are slow; where no single one is to blame, everybody in a slow pair, or all."""
    pairs = {(one, other): gbytes for result in results for one, other, gbytes in result["pairs"]}
    slow = {pair for pair, gbytes in pairs.items() if gbytes < floor}
    touched = sorted({machine for pair in slow for machine in pair})
    surely = [each for each in touched if all(pair in slow for pair in pairs if each in pair)]
    return surely or touched or list(range(count))
