"""What the Docker engine says about a container that didn't start, said for the run's author."""

import re
from pathlib import PurePosixPath

_EXEC = re.compile(r'exec: \\?"(?P<what>[^"\\]*)\\?": (?P<why>[^:"]*)')
_START = re.compile(
    r'exec (?:user process|container process)?[^:]*: ?"?(?P<what>[^":]*)"?:? (?P<why>[a-z ]+)'
)
_CHDIR = re.compile(r'chdir to cwd \(\\?"(?P<what>[^"\\]*)\\?"\)[^:]*: (?P<why>.*)')
_DRIVER = "could not select device driver"
_USER = re.compile(r"unable to find (?P<what>user|group) (?P<name>[^:]+)")


def explained(message: str, *, machine: str) -> str:
    """`message` is the engine's own; one that nobody foresaw stays as it is."""
    text = message.strip()
    if _DRIVER in text:
        return (
            f"The Docker engine of {machine} has no way to give GPUs to containers. Install the NVIDIA Container "
            "Toolkit there (`astraeus-agent check` says how)."
        )
    if found := _USER.search(text):
        return (
            f"There is no {found['what']} {found['name']} in the image. Give a number, or leave `user` out."
        )
    if found := _CHDIR.search(text):
        return f"working_dir {found['what']} can't be entered: {found['why']}"
    found = _EXEC.search(text) or _START.search(text)
    return _not_executed(found["what"].strip(), found["why"].strip()) if found else text


def _not_executed(command: str, why: str) -> str:
    if "not found" in why or why.startswith(("no such file", "stat")):
        return f"command not found: {PurePosixPath(command)} (in the image)"
    if "permission denied" in why:
        return f"{command} can't be executed: permission denied (is it executable?)"
    if "exec format" in why:
        return f"{command} can't be executed: neither a program for this machine nor a script with a #! line"
    return f"{command} can't be executed: {why}"
