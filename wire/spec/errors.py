"""What is wrong with a run document: every mistake at once, each with its place, a code and a sentence."""

import json
import re
from dataclasses import asdict, dataclass

Location = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_KEY = 80


@dataclass(frozen=True)
class SpecError:
    """One mistake: `path` from `format_path`, a `code` that never changes, a sentence for people."""

    path: str
    code: str
    message: str

    def as_json(self) -> dict[str, str]:
        """As it stands in `errors` of a problem+json answer."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class SpecErrors(Exception):
    """All mistakes of a document; `errors` is never empty."""

    def __init__(self, errors: tuple[SpecError, ...]) -> None:
        super().__init__(errors)
        self.errors = errors

    def as_json(self) -> list[dict[str, str]]:
        """The list `errors` of a problem+json answer."""
        return [error.as_json() for error in self.errors]

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


def format_path(location: Location) -> str:
    """`spec.task_template.configs[0].mounts[1]`; a key that is no plain word is quoted: `labels["a/b"]`."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
            continue
        key = step if len(step) <= _LONGEST_KEY else step[: _LONGEST_KEY - 1] + "…"
        if _PLAIN_KEY.fullmatch(key):
            path += f".{key}" if path else key
        else:
            path += f"[{json.dumps(key)}]"
    return path
