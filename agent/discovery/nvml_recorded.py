"""NVML's answers written down, and played back: a machine with GPUs as a file.

{"calls": {"nvmlDeviceGetCount()": {"value": 8}, "nvmlDeviceGetMigMode(gpu0)": {"error": 3, "message": "…"}}}
"""

import json
from pathlib import Path
from typing import Any

from agent.discovery.nvml import Code, Nvml, NvmlError


def _key(name: str, arguments: tuple[str | int, ...]) -> str:
    return f"{name}({', '.join(map(str, arguments))})"


class Recorder:
    """Passes calls on, and keeps the newest answer of each."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self.calls: dict[str, dict[str, Any]] = {}

    def call(self, name: str, *arguments: str | int) -> Any:
        try:
            value = self._nvml.call(name, *arguments)
        except NvmlError as error:
            self.calls[_key(name, arguments)] = {"error": error.code, "message": str(error)}
            raise
        self.calls[_key(name, arguments)] = {"value": value}
        return value

    def text(self) -> str:
        return json.dumps({"calls": self.calls}, indent=1, sort_keys=True) + "\n"


class Replay:
    """Answers as it was recorded; whatever wasn't is not supported."""

    def __init__(self, calls: dict[str, dict[str, Any]]) -> None:
        self.calls = calls

    @classmethod
    def read(cls, path: Path) -> "Replay":
        return cls(json.loads(path.read_text())["calls"])

    def call(self, name: str, *arguments: str | int) -> Any:
        known = self.calls.get(
            _key(name, arguments), {"error": Code.NOT_SUPPORTED, "message": "Not Supported"}
        )
        if "error" in known:
            raise NvmlError(known["error"], known["message"])
        return known["value"]
