"""Small files written so that a reader, or the next start, finds the old one or the new one, never a part."""

import os
from pathlib import Path


def file_replace(path: Path, data: bytes, *, mode: int = 0o600, sync: bool = True) -> None:
    """Write, sync, rename: the file is whole after a crash, and with `sync` also after a power cut."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def directory_sync(path: Path) -> None:
    """Make the directory's entries outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fifo_make(path: Path) -> None:
    if not path.is_fifo():
        os.mkfifo(path, 0o600)
