"""Bodies of requests. Documents are read by wire/spec itself; the small ones here, by the same reader of JSON."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, TypeGuard, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.request import Request

from common.errors import FieldError, Invalid, TooLarge
from wire.names import shown
from wire.spec import Unreadable, read_text
from wire.spec.errors import Location, format_path
from wire.spec.fields import close_to
from wire.spec.tree import MAX_DOCUMENT_BYTES, Tree

MAX_SMALL_BYTES = 64 * 1024
"""Of bodies that are no run document and bring no long text: a machine's 64 labels fit in many times."""

B = TypeVar("B", bound="Body")

_TYPES = {
    "string_type": "must be text.",
    "int_type": "must be a whole number.",
    "bool_type": "must be true or false.",
    "dict_type": "must be an object.",
    "model_type": "must be an object.",
}


class Body(BaseModel):
    """A request's JSON object: nothing is converted, no field is unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def document_text(request: Request) -> bytes:
    """The raw run document: wire/spec reads it itself, so that it can tell duplicate keys and places of errors."""
    return _read(
        request,
        MAX_DOCUMENT_BYTES,
        "The document is over 2 MiB. Put large files on a drive.",
        "the run document",
    )


def body_of(
    request: Request, model: type[B], *, optional: bool = False, most_bytes: int = MAX_SMALL_BYTES
) -> B:
    """The request's body; where it is optional, none counts as `{}`. Raises Invalid with all its errors."""
    text = _read(request, most_bytes, f"The body is over {most_bytes // 1024} KiB.", "the body")
    tree = Tree()
    try:
        data = {} if optional and not text else tree.copy(read_text(text))
    except Unreadable as unreadable:
        raise _invalid([_error(*unreadable.problem)]) from None
    refused = {problem.location for problem in tree.problems}
    found = [_error(*problem) for problem in tree.problems]
    try:
        made = model.model_validate(data)
    except ValidationError as error:
        found += [_worded(model, each) for each in error.errors() if each["loc"] not in refused]
        raise _invalid(found) from None
    if found:
        raise _invalid(found)
    return made


def _read(request: Request, limit: int, too_large: str, what: str) -> bytes:
    body = _bounded(request, limit, too_large)
    kind = request.content_type.split(";")[0].strip().lower()
    if body and kind not in {"application/json", ""}:
        raise UnsupportedMediaType(
            request.content_type, f"Send {what} as JSON: content-type: application/json."
        )
    return body


def _bounded(request: Request, limit: int, too_large: str) -> bytes:
    told = request.META.get("CONTENT_LENGTH") or "0"
    if told.isdigit() and int(told[:20]) > limit:
        raise TooLarge("too_large", too_large)
    body = bytes(request._request.body)  # noqa: SLF001 - DRF's own body property parses first
    if len(body) > limit:  # one that came in pieces told no length
        raise TooLarge("too_large", too_large)
    return body


def _invalid(errors: list[FieldError]) -> Invalid:
    first = errors[0]
    return Invalid(
        "invalid_body",
        f"{first.path}: {first.message}" if first.path else first.message,
        errors=tuple(errors),
    )


def _error(location: Location, code: str, message: str) -> FieldError:
    return FieldError(format_path(location), code, message)


def _worded(model: type[Body], finding: Any) -> FieldError:
    location, kind = finding["loc"], finding["type"]
    if location[-1:] == ("[key]",):  # pydantic's mark of an error in a map's key
        location = location[:-1]
    name = shown(str(location[-1])) if location else "The body"
    if kind in _TYPES:
        return _error(location, "wrong_type", f"{name} {_TYPES[kind]}")
    if kind == "extra_forbidden":
        return _error(location, "unknown_field", _unknown(model, location))
    if kind == "missing":
        return _error(location, "missing", f"{name} is missing.")
    if kind == "literal_error":
        return _error(location, "not_a_choice", f"{name} must be one of {finding['ctx']['expected']}.")
    return _error(location, _CODES.get(kind, kind), f"{name}: {finding['msg'].rstrip('.')}.")


_CODES = {
    "greater_than_equal": "out_of_range",
    "less_than_equal": "out_of_range",
    "string_too_long": "too_long",
    "string_too_short": "too_short",
    "too_long": "too_long",
    "datetime_from_date_parsing": "not_a_time",
    "datetime_parsing": "not_a_time",
    "datetime_type": "not_a_time",
    "timezone_aware": "not_a_time",
}


def _unknown(model: type[BaseModel], location: Location) -> str:
    """Why the field is refused, and which one was probably meant."""
    owner = _model_at(model, location[:-1])
    start = f"{shown(str(location[-1]))} is not a field here"
    if near := close_to(str(location[-1]), list(owner.model_fields)):
        return f"{start}; did you mean `{near}`?"
    return f"{start}. Fields here: {', '.join(f'`{field}`' for field in owner.model_fields)}."


def _model_at(annotation: Any, steps: Location) -> type[BaseModel]:
    """The model that stands there in a value of this type: fields of models, and values of maps."""
    for step in steps:
        inner = (_inner(each, step) for each in _alternatives(annotation))
        annotation = next(each for each in inner if each is not None)
    return next(each for each in _alternatives(annotation) if _is_model(each))


def _inner(annotation: Any, step: str | int) -> Any:
    if _is_model(annotation):
        return annotation.model_fields[str(step)].annotation
    return get_args(annotation)[1] if get_origin(annotation) is dict else None


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The types of a union, without what is only noted beside them."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _alternatives(parts[0])
    elif origin in {Union, UnionType}:
        for part in parts:
            yield from _alternatives(part)
    else:
        yield annotation


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
