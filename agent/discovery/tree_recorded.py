"""What was read of a machine's files written down, and played back: a machine as a file.

{"files": {"sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE", "dev/nvidia-nvswitch0": ""}}
"""

import json
import re
from pathlib import Path

from agent.discovery.tree import Tree

_PROCESS = re.compile(r"proc/[0-9]+(?:/.*)?")
"""What else runs on a machine is nobody's business."""
_MOST_CHARACTERS = 4096
"""Of a file: /proc/cpuinfo says the same of every processor."""


class TreeRecorder(Tree):
    """Keeps what is read."""

    def __init__(self, root: Path = Path("/")) -> None:
        super().__init__(root)
        self.files: dict[str, str] = {}

    def text(self, path: str) -> str | None:
        found = super().text(path)
        if found is not None and not _PROCESS.fullmatch(path):
            self.files[path] = found[:_MOST_CHARACTERS]
        return found

    def exists(self, path: str) -> bool:
        found = super().exists(path)
        if found:
            self.files.setdefault(path, "")
        return found

    def names(self, path: str) -> list[str]:
        found = super().names(path)
        if path != "proc":
            for name in found:
                self.files.setdefault(f"{path}/{name}", "")
        return found

    def text_of_all(self) -> str:
        return json.dumps({"files": self.files}, indent=1, sort_keys=True) + "\n"


class RecordedTree(Tree):
    """Has the files that were read, and the directories that they lie in."""

    def __init__(self, files: dict[str, str]) -> None:
        super().__init__(Path("/nonexistent"))
        self.files = files

    @classmethod
    def read(cls, path: Path) -> "RecordedTree":
        return cls(json.loads(path.read_text())["files"])

    def text(self, path: str) -> str | None:
        found = self.files.get(path)
        return None if found is None else found.strip()

    def exists(self, path: str) -> bool:
        return path in self.files or bool(self.names(path))

    def names(self, path: str) -> list[str]:
        below = f"{path}/"
        return sorted({key[len(below) :].partition("/")[0] for key in self.files if key.startswith(below)})
