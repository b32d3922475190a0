"""The pure figures of the placement benchmark: what the engine and the policy take, and what reading memory takes."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from placement import Placement, Refusal, Request, Snapshot, place

_T = TypeVar("_T")
MIB = 1 << 20


def timed(call: Callable[[], _T]) -> tuple[float, _T]:
    """Milliseconds, and what it gave."""
    begun = perf_counter()
    answer = call()
    return (perf_counter() - begun) * 1000, answer


def place_ms(snapshot: Snapshot, requests: Iterator[Request], count: int, *, stay: int) -> float:
    """The median of so many calls of `place` that found room; those refused are quicker and don't count.

    Every call sees a snapshot that none before it has seen: the last `stay` gangs placed are on it. As many calls
    again go before those that are counted.
    """
    times: list[float] = []
    here: list[Placement] = []
    for request in islice(requests, 6 * count):
        took, answer = _place(snapshot, request)
        if not isinstance(answer, Placement):
            continue
        times.append(took)
        here.append(answer)
        snapshot = snapshot.take(answer)
        while len(here) > stay:
            snapshot = snapshot.give_back(here.pop(0))
        if len(times) == 2 * count:
            return median(times[count:])
    raise AssertionError(f"only {len(times)} of {6 * count} requests found room")


def _place(snapshot: Snapshot, request: Request) -> tuple[float, Placement | Refusal]:
    def whole() -> Placement | Refusal:
        answer = place(snapshot, request)
        if isinstance(answer, Placement):
            # What each worker gets is worked out when it is asked for.
            assert answer.ranks
        return answer

    return timed(whole)


def floor_ms(snapshot: Snapshot) -> float:
    """The median of reading once, from beginning to end, every array that the snapshot holds."""
    words = [_words(array) for array in arrays_in(snapshot)]

    def read() -> None:
        for array in words:
            np.bitwise_or.reduce(array)

    return median(timed(read)[0] for _ in range(101))


def _words(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """The array's memory as 64-bit words: the widest and so the fastest way to read it."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat[: flat.size // 8 * 8].view(np.uint64)


def arrays_in(snapshot: Snapshot) -> "list[np.ndarray[Any, Any]]":
    """The arrays of the snapshot and its topology as they were built, nothing that was remembered later."""
    found: list[np.ndarray[Any, Any]] = []

    def look(value: object) -> None:
        if isinstance(value, np.ndarray):
            found.append(value)
        elif is_dataclass(value):
            for field in fields(value):
                if not field.name.startswith("_"):
                    look(getattr(value, field.name))

    look(snapshot)
    return found


def mib(thing: object) -> float:
    """MiB of everything that can be reached from it, each object once."""
    seen: set[int] = set()
    total, left = 0, [thing]
    while left:
        value = left.pop()
        if id(value) in seen or isinstance(value, type):
            continue
        seen.add(id(value))
        total += sys.getsizeof(value)
        left.extend(_parts(value))
    return total / MIB


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, np.ndarray):
        return () if value.base is None else (value.base,)
    if isinstance(value, dict):
        return (*value.keys(), *value.values())
    if isinstance(value, tuple | list | set | frozenset):
        return value
    slots: Sequence[str] = getattr(type(value), "__slots__", ())
    return (*getattr(value, "__dict__", {}).values(), *(getattr(value, name) for name in slots))
