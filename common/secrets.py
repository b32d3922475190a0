"""Random secrets: made once, shown once, kept as a digest."""

import hashlib
import secrets
from dataclasses import dataclass

PREFIX_LENGTH = 12


@dataclass(frozen=True, slots=True)
class NewSecret:
    value: str
    """What its holder keeps. Never stored."""
    prefix: str
    """Its first characters, so that people can tell secrets apart."""
    digest: str


def secret_digest(value: str) -> str:
    """SHA-256 suffices: the value has 256 random bits, so there is nothing to guess."""
    return hashlib.sha256(value.encode()).hexdigest()


def secret_make(kind: str) -> NewSecret:
    """`kind` leads the value (`ast_…`), so that scanners and people recognise a leaked one."""
    value = f"{kind}_{secrets.token_urlsafe(32)}"
    return NewSecret(value, value[:PREFIX_LENGTH], secret_digest(value))
