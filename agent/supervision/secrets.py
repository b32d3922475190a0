"""A worker's secrets as the agent hands them over: in memory alone, one descriptor, `kind length` and the bytes.

Kinds: `options` (bubblewrap's, NUL-separated: the variables), `file` (a file's content), `mask` (a value to keep
out of the log).
"""

import os


class Secrets:
    """Descriptors of memory for bubblewrap to read from, and what the log must not show."""

    def __init__(self, descriptor: int | None) -> None:
        self.options: int | None = None
        self.files: list[int] = []
        self.masks: list[bytes] = []
        if descriptor is not None:
            self._take(_content(descriptor))

    def _take(self, content: bytes) -> None:
        while content:
            head, _, content = content.partition(b"\n")
            kind, size = head.split()
            part, content = content[: int(size)], content[int(size) :]
            if kind == b"mask":
                self.masks.append(part)
            elif kind == b"file":
                self.files.append(memory(part))
            else:
                self.options = memory(part)


def memory(content: bytes) -> int:
    """A descriptor from which `content` can be read, and which no disk ever sees."""
    descriptor = os.memfd_create("astraeus")
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _content(descriptor: int) -> bytes:
    with open(descriptor, "rb", buffering=0) as file:
        return file.read() or b""
