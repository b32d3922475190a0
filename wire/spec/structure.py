"""Pydantic's findings in the document's own words."""

from collections.abc import Callable
from typing import Any, Final

from pydantic import ValidationError

from wire.names import shown
from wire.quantities import QuantityError, format_size, parse_duration, parse_size
from wire.spec.document import RunDocument
from wire.spec.errors import Location
from wire.spec.fields import (
    bounds,
    called,
    choices,
    close_to,
    field_at,
    is_map,
    type_at,
    unknown_field_sentence,
)
from wire.spec.tree import Problem

MAX_ERRORS: Final = 200

_EXPECTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "an object",
    "model_type": "an object",
    "tuple_type": "a list",
}


def validated(data: Any) -> tuple[RunDocument | None, list[Problem]]:
    """The document, or what is wrong with its structure. `data` holds plain JSON values (`Tree.copy`)."""
    try:
        return RunDocument.model_validate(data), []
    except ValidationError as error:
        findings = [finding for finding in error.errors(include_url=False) if not _is_echo(finding)]
        worded = [_problem(finding) for finding in findings[:MAX_ERRORS]]
        # Beyond the number that is shown only their places count: a suggestion for each would take long.
        return None, worded + [Problem(_place(it), it["type"], it["msg"]) for it in findings[MAX_ERRORS:]]


def _is_echo(finding: Any) -> bool:
    """True for "too short" about a list that is only short because its items have errors of their own."""
    return finding["type"] == "too_short" and len(finding["input"]) > 0


def _place(finding: Any) -> Location:
    location: Location = finding["loc"]
    # Pydantic marks an error in a map's key this way; a field that somebody called "[key]" is no such thing.
    is_key = location[-1:] == ("[key]",) and is_map(type_at(location[:-2]))
    return location[:-1] if is_key else location


def _problem(finding: Any) -> Problem:
    kind, location, value = finding["type"], _place(finding), finding["input"]
    if kind in _EXPECTED:
        return Problem(location, "wrong_type", _wrong_type(kind, location, value))
    if kind in _SENTENCES:
        code, sentence = _SENTENCES[kind]
        if kind == "extra_forbidden" and location == ("status",):
            return Problem(location, "read_only_field", "`status` is written by Astraeus. Leave it out.")
        return Problem(location, code, sentence(location, value))
    # Ours: the code is the type, the sentence is the message.
    return Problem(location, kind, finding["msg"])


def _wrong_type(kind: str, location: Location, value: Any) -> str:
    if not location:
        return f"The document must be an object with `metadata` and `spec`, not {_described(value)}."
    sentence = f"{called(location)} must be {_EXPECTED[kind]}, not {_described(value)}."
    hint = _HINTS[kind](location, value) if kind in _HINTS else ""
    return f"{sentence} {hint}".rstrip()


def _described(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    words = {
        str: "text",
        int: "a number",
        float: "a number with a decimal point",
        list: "a list",
        dict: "an object",
    }
    return words[type(value)]


def _whole_number_hint(location: Location, value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return f"Write {value:.0f}."
    if not isinstance(value, str):
        return ""
    name = str(location[-1])
    try:
        if name.endswith("_bytes"):
            return f"It counts bytes: write {parse_size(value)}."
        if name.endswith("_seconds") and not value.isdecimal():
            return f"It counts seconds: write {parse_duration(value)}."
    except QuantityError:
        return ""
    return "Write it without quotes." if value.isascii() and value.isdecimal() else ""


def _text_hint(location: Location, value: Any) -> str:
    if isinstance(value, list) and location[-1] == "command":
        return "Put the executable here and the rest into `args`."
    if isinstance(value, bool):
        return f'Write "{str(value).lower()}", in quotes.'
    return f'Write "{value}", in quotes.' if isinstance(value, int | float) else ""


def _list_hint(location: Location, value: Any) -> str:
    del location
    return "Put it in brackets: [ … ]." if isinstance(value, str | dict) else ""


def _truth_hint(location: Location, value: Any) -> str:
    del location
    return "Write it without quotes." if value in ("true", "false") else ""


_HINTS: Final[dict[str, Callable[[Location, Any], str]]] = {
    "int_type": _whole_number_hint,
    "string_type": _text_hint,
    "tuple_type": _list_hint,
    "bool_type": _truth_hint,
}


def _missing(location: Location, value: Any) -> str:
    del value
    field = field_at(location)
    return f"{called(location)} is missing. {field.description if field else ''}".rstrip()


def _unknown(location: Location, value: Any) -> str:
    del value
    return unknown_field_sentence(location)


def _not_a_choice(location: Location, value: Any) -> str:
    allowed = choices(location)
    if not isinstance(value, str):
        return f"{called(location)} must be one of {_listed(allowed)}, not {_described(value)}."
    start = f"{shown(value)} is no value of {called(location)}"
    near = close_to(value, list(allowed), cutoff=0.6)
    return f"{start}; did you mean `{near}`?" if near else f"{start}. Values: {_listed(allowed)}."


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _out_of_range(location: Location, value: Any) -> str:
    least, most = bounds(field_at(location))
    name = str(location[-1])
    sentence = f"{called(location)} must be between {least} and {most}, not {value}."
    if name.endswith("_bytes") and least is not None and most is not None:
        return f"{sentence} It counts bytes: from {format_size(least)} to {format_size(most)}."
    if location[-2:] == ("gpu_requests", "count") and value == 0:
        return f"{sentence} A run without GPUs leaves `gpu_requests` out."
    return sentence


def _too_long(location: Location, value: Any) -> str:
    limit = _length_limit(location)
    unit = "characters" if isinstance(value, str) else "entries"
    allowed = f"; at most {limit} are allowed" if limit is not None else ""
    return f"{called(location)} has {len(value)} {unit}{allowed}."


def _length_limit(location: Location) -> int | None:
    field = field_at(location)
    return (
        next((item.max_length for item in field.metadata if hasattr(item, "max_length")), None)
        if field
        else None
    )


def _too_short(location: Location, value: Any) -> str:
    del value
    return f"{called(location)} is empty. Give at least one entry."


_SENTENCES: Final[dict[str, tuple[str, Callable[[Location, Any], str]]]] = {
    "missing": ("missing", _missing),
    "extra_forbidden": ("unknown_field", _unknown),
    "literal_error": ("not_a_choice", _not_a_choice),
    "greater_than_equal": ("out_of_range", _out_of_range),
    "less_than_equal": ("out_of_range", _out_of_range),
    "string_too_long": ("too_long", _too_long),
    "too_long": ("too_long", _too_long),
    "too_short": ("too_short", _too_short),
}
