"""`.astraeus/<name>/`: the data of one kind of local set-up (`up`, `demo`, `test-1` …), locked while in use.

The lock is a flock on an open file. PostgreSQL and Redis inherit it, so it stays taken until the last of them
is gone, even when the command that started them was killed: whoever gets the lock finds no server of an
earlier run.
"""

import contextlib
import fcntl
import json
import os
import pwd
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.local.errors import LocalError

ROOT = Path(__file__).resolve().parents[2]
"""The clone."""

_ENDING_SECONDS = 60.0  # how long to wait for an earlier run of the same command to finish ending


@dataclass(frozen=True)
class Instance:
    """A locked directory. `lock` is the descriptor to hand to every server that works in it."""

    directory: Path
    lock: int

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    def secret(self, name: str) -> str:
        """A random password that lives as long as the directory does, in a file for the owner only."""
        file = self.directory / "secrets" / name
        with contextlib.suppress(FileNotFoundError):
            return file.read_text(encoding="ascii")
        file.parent.mkdir(mode=0o700, exist_ok=True)
        value = secrets.token_urlsafe(32)
        write_private(file, value)
        return value

    def note(self, **facts: Any) -> None:
        """Tells other commands in this clone what goes on here (they read it when the lock is taken)."""
        write_private(self.directory / "owner.json", json.dumps({"pid": os.getpid(), **facts}))

    def remove_data(self) -> None:
        """Back to nothing; the lock stays ours."""
        for entry in self.directory.iterdir():
            if entry.name != "lock":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


@contextlib.contextmanager
def exclusive(name: str, *, root: Path = ROOT) -> Iterator[Instance]:
    """The instance `name`, for a command of which one at a time can run in a clone.

    Waits for an earlier run that is ending; raises LocalError at once when one is at work.
    """
    directory = _directory(name, root)
    lock = _open_lock(directory)
    deadline = time.monotonic() + _ENDING_SECONDS
    waiting = False
    while not _try_lock(lock):
        if _at_work(directory) or time.monotonic() > deadline:
            os.close(lock)
            raise LocalError(_taken(directory, name))
        if not waiting:
            print(f"An earlier ./dev {name} of this clone is still ending; waiting for it.", file=sys.stderr)
            waiting = True
        time.sleep(0.1)
    with _held(directory, lock, command=name) as instance:
        yield instance


@contextlib.contextmanager
def first_free(prefix: str, *, command: str, root: Path = ROOT) -> Iterator[Instance]:
    """The first of `<prefix>-1`, `<prefix>-2` … that nobody uses: for commands that may run side by side."""
    number = 1
    while True:
        directory = _directory(f"{prefix}-{number}", root)
        lock = _open_lock(directory)
        if _try_lock(lock):
            break
        os.close(lock)
        number += 1
    with _held(directory, lock, command=command) as instance:
        yield instance


@contextlib.contextmanager
def _held(directory: Path, lock: int, *, command: str) -> Iterator[Instance]:
    instance = Instance(directory, lock)
    instance.note(command=command, state="running")
    try:
        yield instance
    finally:
        instance.note(command=command, state="ending")
        # Not unlocked, only closed: a server that is still ending holds its own copy of the descriptor.
        os.close(lock)


def _directory(name: str, root: Path) -> Path:
    base = root / ".astraeus"
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        owner = base.stat().st_uid
        if owner != os.geteuid():
            raise LocalError(_foreign(base, owner))
        directory = base / name
        directory.mkdir(mode=0o700, exist_ok=True)
    except PermissionError as error:
        raise LocalError(
            f"{base} can't be written ({error.strerror}). Run ./dev in a clone of your own."
        ) from error
    return directory


def _foreign(base: Path, owner: int) -> str:
    return (
        f"{base} belongs to {_user_name(owner)}, and you are {_user_name(os.geteuid())}. "
        f"Run ./dev as {_user_name(owner)}, or remove that directory (it holds this clone's local data)."
    )


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _open_lock(directory: Path) -> int:
    return os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner(directory: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads((directory / "owner.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return facts


def _at_work(directory: Path) -> bool:
    owner = _owner(directory)
    return owner.get("state") == "running" and Path(f"/proc/{owner['pid']}").exists()


def _taken(directory: Path, name: str) -> str:
    owner = _owner(directory)
    url = f" at {owner['url']}" if "url" in owner else ""
    command, pid = owner.get("command", name), owner.get("pid", "unknown")
    return (
        f"./dev {command} already runs in this clone{url} (process {pid}). "
        "End that one first, or use a second clone."
    )


def write_private(file: Path, text: str) -> None:
    """Writes a file for the owner's eyes only, whole or not at all."""
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
