"""Reading /sys, /proc and /etc below a root directory. Files may vanish, refuse or hold anything at any time."""

from collections.abc import Iterator
from pathlib import Path

_MOST_BYTES = 64 * 1024


class Tree:
    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def text(self, path: str) -> str | None:
        """Content without surrounding white space; None for what can't be read or is no text."""
        try:
            with (self.root / path).open("rb") as file:
                return file.read(_MOST_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError):
            return None

    def number(self, path: str) -> int | None:
        """A decimal or 0x… number; None for anything else."""
        try:
            return int(self.text(path) or "", 0)
        except ValueError:
            return None

    def numa_node(self, device: str) -> int | None:
        """Of a device's directory. The kernel says -1 where there is one node only, or it doesn't know."""
        node = self.number(f"{device}/numa_node")
        return node if node is not None and 0 <= node < 2**15 else None

    def names(self, path: str) -> list[str]:
        """Entries of a directory, sorted; none when it isn't there."""
        try:
            return sorted(entry.name for entry in (self.root / path).iterdir())
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        try:
            return (self.root / path).exists()
        except OSError:
            return False

    def pairs(self, path: str, separator: str = ":") -> Iterator[tuple[str, str]]:
        """`key: value` lines, as in /proc/cpuinfo or /etc/os-release."""
        for line in (self.text(path) or "").splitlines():
            key, found, value = line.partition(separator)
            if found:
                yield key.strip(), value.strip().strip('"')
