"""Query parameters: unknown ones and bad values are mistakes to be told, not to be ignored."""

from collections.abc import Iterable

from rest_framework.request import Request

from common.errors import BadRequest, FieldError
from console.api.base import NUL
from console.numbers import number_read
from wire.names import shown
from wire.spec.fields import close_to


def check_known(request: Request, allowed: Iterable[str] = ()) -> None:
    """Raises BadRequest with every query parameter that is not one of `allowed`, or that has a NUL."""
    known = tuple(allowed)
    if unknown := sorted(set(request.query_params) - set(known)):
        errors = [FieldError(name, "unknown_parameter", _unknown(name, known)) for name in unknown]
        raise BadRequest("unknown_parameter", errors[0].message, errors=tuple(errors))
    for name, values in request.query_params.lists():
        if any(NUL in value for value in values):
            raise bad_parameter(name, f"`{name}` has a NUL character.")


def _unknown(name: str, known: tuple[str, ...]) -> str:
    start = f"{shown(name)} is not a parameter here"
    if near := close_to(name, list(known)):
        return f"{start}; did you mean `{near}`?"
    return f"{start}; it takes {', '.join(known)}." if known else f"{start}; it takes none."


def flag(request: Request, name: str) -> bool:
    """A parameter that is `true` or `false`; false where it is left out."""
    value = request.query_params.get(name, "false")
    if value not in {"true", "false"}:
        raise bad_parameter(name, f"`{name}` must be true or false.")
    return value == "true"


def number(request: Request, name: str, default: int, most: int, *, least: int = 1) -> int:
    """A parameter that is a number from `least` to `most`."""
    value = request.query_params.get(name)
    if value is None:
        return default
    found = number_read(value, most)
    if found is None or found < least:
        raise bad_parameter(name, f"`{name}` must be a number from {least} to {most}.")
    return found


def choices(request: Request, name: str, allowed: Iterable[str]) -> list[str]:
    """Values of `name`, several separated by commas or given one by one."""
    known = list(allowed)
    found = [value for each in request.query_params.getlist(name) for value in each.split(",")]
    for value in found:
        if value not in known:
            near = close_to(value, known, cutoff=0.6)
            hint = f"did you mean `{near}`?" if near else f"values are {', '.join(known)}."
            raise bad_parameter(name, f"{shown(value)} is no value of `{name}`; {hint}")
    return found


def bad_parameter(name: str, message: str) -> BadRequest:
    return BadRequest("bad_parameter", message, errors=(FieldError(name, "bad_parameter", message),))
