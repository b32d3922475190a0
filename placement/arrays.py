"""Short names for the array types of the engine, and the helpers every module needs."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Bits = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

UNKNOWN = -1
"""Index of "none" or "not known" in every index array."""

_Scalar = TypeVar("_Scalar", bound=np.generic)


def read_only(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """The same array, from now on refusing to be written to."""
    array.flags.writeable = False
    return array


def patched(array: npt.NDArray[_Scalar], rows: Longs, there: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """A copy with other values in these rows: most changes are on few machines."""
    copy = array.copy()
    copy[rows] = there
    return read_only(copy)


def starts(*ordered: "Longs | Ints | Words") -> Longs:
    """Positions at which a run of equal values begins in columns that are sorted together."""
    begins = np.zeros(ordered[0].size, dtype=np.bool_)
    begins[:1] = True
    for column in ordered:
        begins[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(begins)


def lengths(start: Longs, size: int) -> Longs:
    """How many positions each run has that begins at `start`, of `size` in all."""
    end = np.empty_like(start)
    end[:-1], end[-1:] = start[1:], size
    return end - start
