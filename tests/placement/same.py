"""Whether two snapshots are the same, array by array and table by table."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from placement import Snapshot


def assert_same(one: Snapshot, other: Snapshot) -> None:
    """Names the first array or table that differs. What a topology only remembers is no part of it."""
    _compare(one, other, "snapshot")


def _compare(one: Any, other: Any, where: str) -> None:
    if is_dataclass(one):
        for each in fields(one):
            if not each.name.startswith("_"):
                _compare(getattr(one, each.name), getattr(other, each.name), f"{where}.{each.name}")
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, where
        assert not one.flags.writeable, f"{where} can be written to"
        np.testing.assert_array_equal(one, other, err_msg=where)
    else:
        assert one == other, where
