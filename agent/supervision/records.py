"""The supervisor's side of a worker's directory: lock, records, marker. All paths are relative to it."""

import fcntl
import os
from _json import encode_basestring_ascii

RECORD_BYTES = 4096
RECORDS = 6  # prepared, running, warned, stopping, killed, and the exit

Value = str | int | float | bool | None
Record = dict[str, Value]


def dump(record: Record) -> bytes:
    """The record as a line of JSON."""
    return ("{" + ", ".join(f'"{key}": {_value(item)}' for key, item in record.items()) + "}\n").encode()


def _value(item: Value) -> str:
    if item is None:
        return "null"
    if isinstance(item, bool):
        return "true" if item else "false"
    return encode_basestring_ascii(item) if isinstance(item, str) else repr(item)


def read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - no pathlib here, see the package
        return file.read() or b""


def settings_read() -> dict[str, str]:
    """`launch`: a line `key=value` each."""
    return dict(line.split("=", 1) for line in read("launch").decode().splitlines())


def lock_taken() -> bool:
    """Lock `lock` for this process's life. The agent only asks who holds it (F_GETLK), it never locks."""
    descriptor = os.open("lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def errors_redirect() -> None:
    """What Python says about an error of this process is worth reading afterwards."""
    errors = os.open("supervisor.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    os.close(errors)


def spares_reserve() -> None:
    """Take the disk space of all records now: a disk that fills up later must not lose the exit."""
    for number in range(RECORDS):
        descriptor = os.open(f"spare.{number}", os.O_WRONLY | os.O_CREAT, 0o600)
        os.posix_fallocate(descriptor, 0, RECORD_BYTES)
        os.close(descriptor)


def record_write(name: str, record: Record, *, sync: bool = False) -> None:
    """Replace the record at once and whole; with `sync` it has reached the disk on return."""
    spares = (f"spare.{number}" for number in range(RECORDS))
    spare = next(filter(os.path.exists, spares), name + ".tmp")
    descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(descriptor, dump(record).ljust(RECORD_BYTES))
    if sync:
        os.fsync(descriptor)
    os.close(descriptor)
    os.rename(spare, name)  # noqa: PTH104 - no pathlib here, see the package
    if sync:
        directory_sync()


def marker_create() -> None:
    """The start marker: exclusive and on the disk before this returns. FileExistsError: started before."""
    marker = os.open("started", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.fsync(marker)
    os.close(marker)
    directory_sync()


def directory_sync() -> None:
    descriptor = os.open(".", os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
