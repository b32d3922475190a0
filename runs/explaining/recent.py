"""What was worked out a moment ago, kept in this process for as long as it is still true enough."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Recent(Generic[_Key, _Value]):
    """At most `most` values, each for `seconds`. Values are shared: nobody changes them."""

    def __init__(self, *, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._kept: OrderedDict[_Key, tuple[float, _Value]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        """The value kept under `key`, or a new one."""
        with self._lock:
            found = self._kept.get(key)
        if found and time.monotonic() < found[0]:
            return found[1]
        value = make()
        with self._lock:
            self._kept[key] = (time.monotonic() + self._seconds, value)
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return value
