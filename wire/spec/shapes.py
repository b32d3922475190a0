"""Over how many machines a group's GPUs can be split."""

from typing import NamedTuple

MAX_MACHINES = 10_000
MAX_GPUS = 100_000


class Shape(NamedTuple):
    """One worker on each of `machines` machines, `gpus_per_machine` GPUs each (0: a run without GPUs)."""

    machines: int
    gpus_per_machine: int


def candidate_shapes(
    gpus: int, *, machines: int | None, min_nodes: int | None, max_nodes: int | None, min_per_machine: int = 1
) -> tuple[Shape, ...]:
    """Every even split that the request allows, fewest machines first; () when there is none.

    `gpus` is the whole group's number, 0 for a group without GPUs. Either `machines` or a range may be
    given; with neither, Astraeus chooses among all splits (one machine without GPUs).
    """
    if machines is not None:
        numbers = range(machines, machines + 1)
    elif min_nodes is not None or max_nodes is not None:
        numbers = range(min_nodes or 1, (max_nodes or default_max_nodes(gpus)) + 1)
    else:
        numbers = range(1, default_max_nodes(gpus) + 1)
    if not gpus:
        return tuple(Shape(n, 0) for n in numbers)
    return tuple(Shape(n, gpus // n) for n in numbers if gpus % n == 0 and gpus // n >= min_per_machine)


def default_max_nodes(gpus: int) -> int:
    """The most machines where no number is given: each holds at least one GPU."""
    return min(max(gpus, 1), MAX_MACHINES)
