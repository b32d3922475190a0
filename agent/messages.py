"""What bubblewrap says about a sandbox that failed, said for the run's author."""

import re
from pathlib import Path

from wire.assignments import Assignment

_LINE = re.compile(r"^bwrap: (.*)$", re.MULTILINE)
_NO_NAMESPACES = ("namespace", "uid map", "gid map", "Operation not permitted")


def explained(message: str, assignment: Assignment | None, *, machine: str) -> str:
    """`message` is everything bubblewrap has written; one that isn't bubblewrap's own stays as it is."""
    lines = _LINE.findall(message)
    if not lines:
        return message.strip()
    line = lines[-1]
    command = (assignment.command if assignment else None) or "the command"
    if line.startswith("execvp "):
        return _not_executed(command, line.rpartition(": ")[2])
    if line.startswith("Can't chdir to "):
        directory = (assignment.working_dir if assignment else None) or "/"
        return f"working_dir {directory} can't be entered on {machine}: {line.rpartition(': ')[2]}"
    if any(part in line for part in _NO_NAMESPACES):
        return f"{machine} can't make sandboxes ({line}). Run `astraeus-agent check` there."
    return f"The sandbox could not be built on {machine}: {line}"


def _not_executed(command: str, cause: str) -> str:
    if cause == "No such file or directory":
        if "/" in command and Path(command).exists():
            return f"{command} can't be executed: the interpreter named in its first line is not there"
        return f"command not found: {command}"
    if cause == "Permission denied":
        return f"{command} can't be executed: permission denied (is it executable?)"
    if cause == "Exec format error":
        return f"{command} can't be executed: neither a program for this machine nor a script with a #! line"
    return f"{command} can't be executed: {cause}"
