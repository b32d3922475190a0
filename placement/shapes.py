"""In which shapes a group may run: so many machines, so many GPUs on each."""

from dataclasses import dataclass

from placement.request import GroupRequest


@dataclass(frozen=True, slots=True)
class Shape:
    """How a group is split: so many machines, so many GPUs on each."""

    machines: int
    gpus: int


def shapes_of(group: GroupRequest, most_gpus: int) -> tuple[Shape, ...]:
    """The shapes that the request allows, fewest machines first.

    `most_gpus` is what the largest machine of the cluster has: where Astraeus chooses, larger slices are not worth
    trying. Empty when the GPUs cannot be split as asked on any machine.
    """
    if group.gpus == 0:
        return (Shape(group.machines or group.min_nodes or 1, 0),)
    if group.machines is not None:
        split, rest = divmod(group.gpus, group.machines)
        return (Shape(group.machines, split),) if rest == 0 else ()
    fewest, most = group.min_nodes or 1, group.max_nodes or group.gpus
    splits = range(min(most_gpus, group.gpus), max(group.min_per_machine, 1) - 1, -1)
    return tuple(
        Shape(group.gpus // split, split)
        for split in splits
        if group.gpus % split == 0 and fewest <= group.gpus // split <= most
    )
