"""The `user` of a run: "1000", "1000:1000", "name" or "name:group", looked up on this machine."""

import grp
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from agent.runtime import NotPrepared


class BadUserError(NotPrepared):
    """A user that a worker can't become here; the message says why."""


@dataclass(frozen=True)
class User:
    uid: int
    gid: int
    groups: tuple[int, ...]


def user_find(text: str | None) -> User | None:
    """None when the worker simply runs as the agent does. Raises BadUserError."""
    if not text:
        return None
    name, _, group = text.partition(":")
    try:
        found = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        found = None
    if found is None and not name.isdecimal():
        raise BadUserError(f"There is no user {name} on this machine. Give a uid, or leave `user` out.")
    uid = found.pw_uid if found else int(name)
    gid = _group(group) if group else (found.pw_gid if found else uid)
    if os.geteuid() != 0:
        _refuse_other(text, uid)
        return None
    groups = os.getgrouplist(found.pw_name, gid) if found and not group else [gid]
    return User(uid, gid, tuple(groups))


def user_reaches(user: User, path: str) -> bool:
    """Whether the user may pass all directories above `path`."""
    return all(_may_pass(user, directory) for directory in Path(os.path.realpath(path)).parents)


def _may_pass(user: User, directory: Path) -> bool:
    try:
        found = directory.stat()
    except OSError:
        return False
    if user.uid == found.st_uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid in (user.gid, *user.groups):
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def _group(name: str) -> int:
    if name.isdecimal():
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise BadUserError(
            f"There is no group {name} on this machine. Give a gid, or leave it out."
        ) from None


def _refuse_other(text: str, uid: int) -> None:
    if uid != os.geteuid():
        raise BadUserError(
            f"The worker should run as {text}, but the agent of this machine is no root and can only start "
            f"workers as itself (uid {os.geteuid()}). Leave `user` out, or choose another machine."
        )
