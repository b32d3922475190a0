"""The driver's library (NVML) as calls by name with plain answers, so that they can be recorded and played back.

Handles never leave this module: a GPU is "gpu<index>", an instance of it "gpu<index>/mig<index>".
"""

import ctypes
import re
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import Any, Protocol

from agent.discovery.answers import Xid

_DEVICE = re.compile(r"gpu([0-9]+)(?:/mig([0-9]+))?")
_VALUE_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class Code(IntEnum):
    """nvmlReturn_t, as far as they are told apart here."""

    NOT_SUPPORTED = 3
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    VERSION_MISMATCH = 18
    UNKNOWN = 999


class NvmlError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Nvml(Protocol):
    def call(self, name: str, *arguments: str | int) -> Any:
        """Numbers, texts, lists and dictionaries of them. Raises NvmlError."""


class Library:
    """The library of this machine. Any call may hang for ever: only ever made in the helper process."""

    def __init__(self) -> None:
        import pynvml

        self._library: Any = pynvml
        self._handles: dict[str, Any] = {}
        self._events: Any = None
        self._special: dict[str, Callable[..., Any]] = {
            "nvmlDeviceGetFieldValue": self._field,
            "nvmlDeviceGetGpuFabricInfoV": self._fabric,
            "nvmlDeviceGetSramEccErrorStatus": self._sram,
        }

    def open(self) -> None:
        """Raises NvmlError."""
        self._guarded(self._library.nvmlInit)

    def call(self, name: str, *arguments: str | int) -> Any:
        return self._guarded(lambda: self._call(name, *arguments))

    def watch(self, devices: int) -> None:
        """From now on errors of the GPUs 0 … `devices` - 1 are collected. GPUs that can't report any are left out."""
        self._events = self._guarded(self._library.nvmlEventSetCreate)
        kind = self._library.nvmlEventTypeXidCriticalError
        for index in range(devices):
            register = partial(self._register, f"gpu{index}", kind)
            with suppress(NvmlError):
                self._guarded(register)

    def _register(self, gpu: str, kind: int) -> None:
        self._library.nvmlDeviceRegisterEvents(self._handle(gpu), kind, self._events)

    def wait(self, milliseconds: int) -> Xid | None:
        """The next error; None when there is none within that time. Raises NvmlError."""
        try:
            event = self._guarded(lambda: self._library.nvmlEventSetWait_v2(self._events, milliseconds))
        except NvmlError as error:
            if error.code == Code.TIMEOUT:
                return None
            raise
        uuid = self._guarded(lambda: self._library.nvmlDeviceGetUUID(event["device"]))
        return Xid(uuid=uuid, number=event["eventData"])

    def _guarded(self, act: Callable[[], Any]) -> Any:
        try:
            return _plain(act())
        except self._library.NVMLError as error:
            raise NvmlError(int(error.value), str(error)) from error
        except (AttributeError, IndexError, UnicodeDecodeError) as error:
            raise NvmlError(Code.FUNCTION_NOT_FOUND, str(error)) from error

    def _call(self, name: str, *arguments: str | int) -> Any:
        resolved = [self._handle(each) if isinstance(each, str) else each for each in arguments]
        if special := self._special.get(name):
            return special(*resolved)
        return getattr(self._library, name)(*resolved)

    def _handle(self, device: str) -> Any:
        """Instances come and go under the same index: their handles aren't kept."""
        found = _DEVICE.fullmatch(device)
        if found is None:
            raise NvmlError(Code.NOT_FOUND, f"{device} is no device")
        if found[2] is not None:
            parent = self._handle(f"gpu{found[1]}")
            return self._library.nvmlDeviceGetMigDeviceHandleByIndex(parent, int(found[2]))
        if device not in self._handles:
            self._handles[device] = self._library.nvmlDeviceGetHandleByIndex(int(found[1]))
        return self._handles[device]

    def _field(self, handle: Any, number: int, scope: int = 0) -> Any:
        """One of nvmlDeviceGetFieldValues, whose answers carry an error and a type each."""
        value = self._library.nvmlDeviceGetFieldValues(handle, [(number, scope)])[0]
        if value.nvmlReturn != 0:
            raise NvmlError(int(value.nvmlReturn), f"field {number} isn't there")
        return getattr(value.value, _VALUE_TYPES[value.valueType])

    def _fabric(self, handle: Any) -> Any:
        info = self._library.c_nvmlGpuFabricInfoV_t()
        self._library.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        return info

    def _sram(self, handle: Any) -> Any:
        status = self._library.c_nvmlEccSramErrorStatus_v1_t()
        self._library.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
        return status


def _plain(value: Any) -> Any:
    """Structures as dictionaries, arrays as lists, bytes as text; handles stay what they are."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, ctypes.Structure):
        return {name: _plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, ctypes.Array | list | tuple):
        return [_plain(each) for each in value]
    return value
