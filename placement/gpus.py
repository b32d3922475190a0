"""Which GPUs of a machine a worker gets: healthy first, one NVLink island or NUMA node, aligned blocks."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from placement.arrays import Longs
from placement.ask import Ask
from placement.snapshot import FREE_HEALTHY, FREE_SUSPECT

_NO, _HEALTHY, _SUSPECT = 0, 1, 2


def gpu_slots(ask: Ask, machines: Longs, needed: int) -> Longs:
    """(machines, needed): slots of the GPUs that each of these machines gives, ascending.

    Every machine must have as many free GPUs as needed. Machines that look alike are thought about once.
    """
    state = ask.snapshot.gpu_state[machines]
    offer = np.where(state == FREE_HEALTHY, _HEALTHY, _NO).astype(np.uint8)
    if not ask.group.healthy_only:
        offer[state == FREE_SUSPECT] = _SUSPECT
    if ask.topology.mixed.size:  # elsewhere all GPUs of a machine fit, or none
        offer *= ask.gpu_fits(machines)
    given = offer != _NO
    if np.count_nonzero(given) == machines.size * needed:  # nothing is left to choose
        return np.nonzero(given)[1].reshape(machines.size, needed)
    island, index = ask.topology.gpu_island[machines], ask.topology.gpu_index[machines]
    alike = machines.size > 1 and all((table[1:] == table[:-1]).all() for table in (offer, island, index))
    chosen = [
        choose(offer[row].tobytes(), island[row].tobytes(), index[row].tobytes(), needed)
        for row in range(1 if alike else machines.size)
    ]
    if alike:
        chosen *= machines.size
    return np.array(chosen, dtype=np.int64).reshape(machines.size, needed)


@lru_cache(maxsize=65536)
def choose(offer: bytes, islands: bytes, indices: bytes, needed: int) -> tuple[int, ...]:
    """The slots to use on one machine, ascending.

    `offer`: per slot 0 not usable, 1 healthy, 2 suspect; `islands` and `indices`: int32 per slot. As few suspects as
    possible come first, then as few islands, then the block that leaves the most useful rest.
    """
    island = np.frombuffer(islands, dtype=np.int32).tolist()
    index = np.frombuffer(indices, dtype=np.int32).tolist()
    healthy = [slot for slot, kind in enumerate(offer) if kind == _HEALTHY]
    if len(healthy) >= needed:
        return tuple(sorted(_over_islands(healthy, island, index, needed)))
    near = {island[slot] for slot in healthy}
    suspects = [slot for slot, kind in enumerate(offer) if kind == _SUSPECT]
    suspects.sort(key=lambda slot: (island[slot] not in near, index[slot]))
    return tuple(sorted(healthy + suspects[: needed - len(healthy)]))


def _over_islands(free: Sequence[int], island: Sequence[int], index: Sequence[int], needed: int) -> list[int]:
    """From as few islands as possible: the fullest ones whole, the rest from the one that it fits most tightly."""
    by_island: dict[int, list[int]] = {}
    for slot in free:
        by_island.setdefault(island[slot], []).append(slot)
    chosen: list[int] = []
    while (rest := needed - len(chosen)) > 0:
        large_enough = [slots for slots in by_island.values() if len(slots) >= rest]
        if large_enough:
            return chosen + _block(min(large_enough, key=len), index, rest)
        fullest = max(by_island, key=lambda number: len(by_island[number]))
        chosen += by_island.pop(fullest)
    return chosen


def _block(free: Sequence[int], index: Sequence[int], needed: int) -> list[int]:
    """Aligned blocks, as a buddy allocator cuts them: halve while one half alone is enough, the fuller one last."""
    size = 1
    while size <= max(index[slot] for slot in free):
        size *= 2
    return _halve(sorted(free, key=lambda slot: index[slot]), index, needed, 0, size)


def _halve(free: Sequence[int], index: Sequence[int], needed: int, start: int, size: int) -> list[int]:
    if len(free) == needed or size <= 1:
        return list(free[:needed])
    middle = start + size // 2
    lower = [slot for slot in free if index[slot] < middle]
    upper = [slot for slot in free if index[slot] >= middle]
    halves = sorted([(lower, start), (upper, middle)], key=lambda half: len(half[0]))
    for half, begin in halves:
        if len(half) >= needed:
            return _halve(half, index, needed, begin, size // 2)
    (lesser, lesser_start), (fuller, _) = halves
    return list(fuller) + _halve(lesser, index, needed - len(fuller), lesser_start, size // 2)
