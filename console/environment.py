"""Settings come from the environment only. A wrong value stops the start with a sentence that names it."""

import os
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured


def text(name: str, default: str | None = None) -> str:
    """The variable's value, or the content of the file that `<name>_FILE` names (for secrets)."""
    if file := os.environ.get(f"{name}_FILE"):
        return Path(file).read_text(encoding="utf-8").strip()
    value = os.environ.get(name, default)
    if value is None:
        raise ImproperlyConfigured(f"{name} is not set. See docs/settings.md for every setting.")
    return value


def flag(name: str, *, default: bool) -> bool:
    value = os.environ.get(name)
    if value is None:
        return default
    if value not in {"0", "1"}:
        raise ImproperlyConfigured(f"{name} is {value!r}; it must be 0 or 1.")
    return value == "1"


def number(name: str, default: int, *, low: int, high: int) -> int:
    value = os.environ.get(name, str(default))
    if not value.isascii() or not value.isdigit() or not low <= int(value) <= high:
        raise ImproperlyConfigured(f"{name} is {value!r}; it must be a number from {low} to {high}.")
    return int(value)


def choice(name: str, default: str, *, known: tuple[str, ...]) -> str:
    value = os.environ.get(name, default)
    if value not in known:
        raise ImproperlyConfigured(f"{name} is {value!r}; it must be one of {', '.join(known)}.")
    return value


def address(name: str, default: str | None = None, *, schemes: tuple[str, ...]) -> str:
    """A URL that begins with one of `schemes`. Its value is not told back: it may hold a password."""
    value = text(name, default)
    if urlsplit(value).scheme not in schemes:
        raise ImproperlyConfigured(f"{name} must begin with {' or '.join(f'{each}://' for each in schemes)}.")
    return value


def names(name: str, default: str = "") -> list[str]:
    """The default also for an empty value, which is what compose.yaml passes on for a variable that isn't set."""
    return [part.strip() for part in (os.environ.get(name) or default).split(",") if part.strip()]
