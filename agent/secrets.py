"""The agent's side of a worker's secrets: from the assignment to the supervisor without touching a disk."""

from agent.runtime import NotPrepared
from agent.supervision.secrets import memory
from wire.assignments import SHORTEST_SECRET, Assignment

FILE_MODE = 0o400


def secret_files(assignment: Assignment) -> list[tuple[str, int, bytes]]:
    """Path, mode and bytes of every secret that is a file."""
    return [
        (secret.path, FILE_MODE, (secret.value or "").encode())
        for secret in assignment.secrets
        if secret.path is not None
    ]


def secret_variables(assignment: Assignment) -> dict[str, str]:
    return {secret.env: secret.value or "" for secret in assignment.secrets if secret.env is not None}


def masks(assignment: Assignment | None) -> list[bytes]:
    """What must not be seen of them: the values, and of those with several lines each line, as a program may
    print them one by one. White space around them is no secret."""
    values = [secret.value for secret in assignment.secrets if secret.value] if assignment else []
    texts = {text.strip() for value in values for text in (value, *value.splitlines())}
    return sorted(text.encode() for text in texts if len(text.encode()) >= SHORTEST_SECRET)


def handover(assignment: Assignment) -> int | None:
    """A descriptor for the supervisor, as agent/supervision/secrets.py reads it; None without secrets.

    Raises NotPrepared.
    """
    if not assignment.secrets:
        return None
    variables = secret_variables(assignment)
    if any("\0" in value for value in variables.values()):
        raise NotPrepared("The value of a secret has a NUL character, which no variable takes. Use a file.")
    words = [word for name, value in variables.items() for word in ("--setenv", name, value)]
    parts = [
        ("options", b"".join(word.encode() + b"\0" for word in words)),
        *(("file", data) for _, _, data in secret_files(assignment)),
        *(("mask", mask) for mask in masks(assignment)),
    ]
    return memory(b"".join(f"{kind} {len(part)}\n".encode() + part for kind, part in parts))
