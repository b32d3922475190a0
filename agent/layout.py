"""What a sandbox's file system looks like: bubblewrap's options for its mounts, from this machine's own tree.

The rule above all: nothing of the machine is ever writable, and nothing is created on it. bubblewrap can't
make a mount point inside a directory that it binds read-only, so a directory in which a config needs a new
entry is *rebuilt*: an empty tmpfs in its place, and everything that the machine has in it bound into that.

The order of the options is the order of the mounts, each on top of the ones before:
  1. the machine's tree, read-only, with rebuilt directories
  2. private directories (/tmp, /run, ...) and what is hidden (the agents' state, credentials of the machine)
  3. Python's own directories, where 2 covers them
  4. drives
  5. configs and secrets
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MOST_ENTRIES = 2000
"""A directory with more is not rebuilt: the time grows with the square (1,100 entries: 1 s)."""

PRIVATE = {"/tmp": 0o1777, "/var/tmp": 0o1777, "/run": 0o755}  # noqa: S108 - the sandbox's own
SPECIAL = ("/proc", "/dev", "/sys")
KERNEL_SETTINGS = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr")
"""Of /proc: root writes to them without any capability, and they are the whole machine's."""


class LayoutError(Exception):
    """A sandbox that can't be built as asked; the message is for the run's author."""


@dataclass(frozen=True)
class Data:
    """A read-only file with given content: `descriptor` is where bubblewrap finds it."""

    path: str
    mode: int
    descriptor: int
    kind: str = "config"

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"


@dataclass(frozen=True)
class Bind:
    """A directory of this machine, mounted whole: `source` has no symbolic links in it."""

    path: str
    drive: str
    source: str
    read_only: bool

    def __str__(self) -> str:
        return f"drive {self.drive} at {self.path}"


@dataclass(frozen=True)
class Machine:
    """What the layout takes from this machine."""

    hidden: tuple[str, ...] = ()
    """Files and directories that no worker may see."""
    kept: tuple[str, ...] = ()
    """Directories that stay visible although something private or hidden covers them."""
    devices: tuple[str, ...] = ()


@dataclass
class _Plan:
    rebuilt: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    """Entries of rebuilt directories that are left out, because something is mounted in their place."""
    targets: dict[str, Data | Bind] = field(default_factory=dict)


def target_of(path: str) -> str:
    """Where a mount at `path` really is, as bubblewrap follows no link at its end."""
    return str(Path(os.path.realpath(Path(path).parent)) / Path(path).name)


def layout(
    machine: Machine, wanted: Sequence[Data | Bind], *, shm_bytes: int, tmp_bytes: int, ready_descriptor: int
) -> list[str]:
    """bubblewrap's options, with all that is `wanted` at its path.

    `shm_bytes` and `tmp_bytes` limit /dev/shm and /tmp, 0 is the kernel's default.

    bubblewrap closes `ready_descriptor` when all mounts are done. Raises LayoutError.
    """
    covers = _covers(machine)
    kept = [path for path in map(os.path.realpath, machine.kept) if _covering(path, covers)]
    plan = _plan(wanted, covers, kept)
    below_kept = {path for path in plan.rebuilt if _covering(path, kept)}
    options = [
        *_tree(plan, plan.rebuilt - below_kept),
        *_private(covers, tmp_bytes),
        *("--dev", "/dev", "--perms", "1777", *_size(shm_bytes), "--tmpfs", "/dev/shm"),  # noqa: S108 - the sandbox's own
        *("--proc", "/proc"),
        *(
            option
            for name in KERNEL_SETTINGS
            for option in ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")
        ),
        *(option for path in machine.devices for option in ("--dev-bind-try", path, path)),
        *(option for path in kept for option in ("--ro-bind", path, path)),
        *_name_service(covers),
        *(option for path in sorted(below_kept, key=_depth) for option in _rebuilt(path, plan)),
    ]
    # A file is put into what is mounted before it, never into a drive (_refuse_nested).
    for target, mount in plan.targets.items():
        if isinstance(mount, Bind):
            options += ["--ro-bind" if mount.read_only else "--bind", mount.source, target]
        else:
            options += ["--perms", f"{mount.mode:04o}", "--ro-bind-data", str(mount.descriptor), target]
    read_only = {*plan.rebuilt, *(path for path in covers if path not in PRIVATE and Path(path).is_dir())}
    for path in sorted(read_only, key=_depth):
        options += ["--remount-ro", path]
    return [*options, "--file", str(ready_descriptor), "/dev/.ready"]


# --- where all that is wanted goes


def _plan(wanted: Iterable[Data | Bind], covers: Sequence[str], kept: Sequence[str]) -> _Plan:
    plan = _Plan()
    for mount in wanted:
        target = target_of(mount.path)
        if target in plan.targets:
            raise LayoutError(
                f"The {plan.targets[target]} and the {mount} are one path on this machine "
                f"({target}). Give one of them another path."
            )
        special = _covering(target, SPECIAL)
        if special:
            raise LayoutError(f"The {mount} can't be mounted: {special} belongs to the system.")
        plan.targets[target] = mount
        if _covering(target, kept) or not _covering(target, covers):
            try:
                _make_room(plan, mount, target)
            except OSError as error:
                raise LayoutError(f"The {mount} can't be mounted: {error.strerror}.") from error
    _refuse_nested(plan)
    return plan


def _refuse_nested(plan: _Plan) -> None:
    """Below a file nothing can be mounted, and in a drive it would leave a mount point behind."""
    for target, mount in plan.targets.items():
        outer = _covering(str(Path(target).parent), plan.targets)
        if outer:
            file = "" if isinstance(plan.targets[outer], Bind) else ", which is a file"
            raise LayoutError(
                f"The {mount} lies below the {plan.targets[outer]}{file}. Give one of them another path."
            )


def _make_room(plan: _Plan, mount: Data | Bind, target: str) -> None:
    """See to a mount point at `target`, which lies in the machine's own tree."""
    path, wants_directory = Path(target), isinstance(mount, Bind)
    if path.exists() and not path.is_symlink():
        _refuse_other_kind(mount, path, wants_directory=wants_directory)
        return
    ancestor = path.parent
    while not ancestor.exists():
        ancestor = ancestor.parent
    if not ancestor.is_dir():
        raise LayoutError(
            f"The {mount} can't be mounted: {ancestor} is a file on this machine. "
            "Mount it at another path, such as /app/config."
        )
    plan.rebuilt.add(str(ancestor))
    plan.replaced.add(target)


def _refuse_other_kind(mount: Data | Bind, path: Path, *, wants_directory: bool) -> None:
    if path.is_dir() == wants_directory:
        return
    there = "a file" if wants_directory else "a directory"
    example = "/data" if wants_directory else f"{mount.path}/config"
    raise LayoutError(
        f"The {mount} can't be mounted: this machine has {there} there. "
        f"Mount it at another path, such as {example}."
    )


# --- the mounts


def _tree(plan: _Plan, rebuilt: set[str]) -> Iterator[str]:
    if "/" in rebuilt:
        yield from _entries("/", plan)  # bubblewrap begins with an empty root
    else:
        yield from ("--ro-bind", "/", "/")
    for path in sorted(rebuilt - {"/"}, key=_depth):
        yield from _rebuilt(path, plan)


def _rebuilt(path: str, plan: _Plan) -> Iterator[str]:
    yield from ("--perms", "0755", "--tmpfs", path)
    yield from _entries(path, plan)


def _entries(directory: str, plan: _Plan) -> Iterator[str]:
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise LayoutError(
            f"Nothing can be mounted in {directory}: {error.strerror}. Mount it in a directory of its "
            "own, such as /app."
        ) from error
    if len(entries) > MOST_ENTRIES:
        raise LayoutError(
            f"Nothing can be mounted in {directory}, which has {len(entries)} entries on this machine. "
            "Mount it in a directory of its own, such as /app."
        )
    for entry in entries:
        path = entry.path
        if path in plan.replaced or path in ("/proc", "/dev"):
            continue
        if entry.is_symlink():
            yield from ("--symlink", str(Path(path).readlink()), path)
        elif path not in PRIVATE:
            yield from ("--ro-bind-try", path, path)


def _covers(machine: Machine) -> list[str]:
    """Private and hidden paths as they are without symbolic links, the outer ones first."""
    hidden = {os.path.realpath(path) for path in machine.hidden if os.path.lexists(path)}
    private = [path for path in PRIVATE if os.path.realpath(path) == path and Path(path).is_dir()]
    outer = [path for path in hidden if not _covering(path, private)]
    return [*private, *sorted(outer, key=_depth)]


def _private(covers: Sequence[str], tmp_bytes: int) -> Iterator[str]:
    for path in covers:
        if path in PRIVATE:
            yield from ("--perms", f"{PRIVATE[path]:04o}", *_size(tmp_bytes), "--tmpfs", path)
        elif Path(path).is_dir():
            yield from ("--perms", "0755", "--tmpfs", path)
        else:
            yield from ("--ro-bind", "/dev/null", path)


def _name_service(covers: Sequence[str]) -> Iterator[str]:
    """/etc/resolv.conf is often a link into /run."""
    target = os.path.realpath("/etc/resolv.conf")
    if _covering(target, covers) and Path(target).is_file():
        yield from ("--ro-bind", target, target)


def _size(limit: int) -> tuple[str, ...]:
    return ("--size", str(limit)) if limit > 0 else ()


def _covering(path: str, directories: Iterable[str]) -> str | None:
    """The one of `directories` that is `path` or holds it."""
    return next((d for d in directories if path == d or path.startswith(d.rstrip("/") + "/")), None)


def _depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")
