"""Plain forms of a few fields: what was typed comes back with what is wrong at its field, secrets excepted."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from common.errors import DomainError

SECRET = "secret"  # noqa: S105 - a kind of field


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    title: str
    kind: str = "text"
    """`text`, `select`, or `secret`: a text of several lines that is never shown again."""
    hint: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    """Of a `select`: value and words."""
    value: str = ""
    problem: str = ""
    group: str = ""
    """What it and those beside it with the same word are about: they stand in one line, named by it."""


@dataclass(frozen=True, slots=True)
class Form:
    key: str
    """Begins the ids of its fields, so that several forms may stand on one page."""
    submit: str
    fields: tuple[Field, ...]
    action: str = ""
    problem: str = ""
    """What is wrong with no field in particular."""

    @property
    def wrong(self) -> bool:
        return bool(self.problem) or any(field.problem for field in self.fields)

    def filled(self, values: Mapping[str, str]) -> "Form":
        """With these values in its fields; those of secrets stay empty."""
        fields = (
            field if field.kind == SECRET else replace(field, value=values.get(field.name, field.value))
            for field in self.fields
        )
        return replace(self, fields=tuple(fields))

    def refused(self, error: DomainError) -> "Form":
        """With the first thing that is wrong with each field."""
        names = {field.name for field in self.fields}
        problems = {each.path: each.message for each in reversed(error.errors)}
        fields = tuple(replace(field, problem=problems.get(field.name, "")) for field in self.fields)
        elsewhere = [message for path, message in problems.items() if path not in names]
        told = "" if names & problems.keys() else error.message
        return replace(self, fields=fields, problem=elsewhere[0] if elsewhere else told)


def typed(values: Mapping[str, str], name: str) -> str:
    """What was typed into a field of one line."""
    return values.get(name, "").strip()


def typed_secret(values: Mapping[str, str], name: str) -> str:
    """A secret as it was pasted: browsers send every line break as CR LF, which no key file has."""
    return values.get(name, "").replace("\r\n", "\n")
