"""What drf-spectacular can't see: shapes of bodies and answers, the run document, the streams of logs."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, TypeVar

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from common.problem import CONTENT_TYPE
from console.api.answers import Problem
from console.api.log_streams import log_streams
from console.api.pages import DEFAULT_LIMIT, LARGEST_CURSOR, MAX_LIMIT
from wire.spec import run_schema
from wire.spec.schema import tidied

JSON = "application/json"
DOCUMENT = "RunDocument"
REF = "#/components/schemas/"
Schema = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])

READ = (400, 401, 404, 406)
"""Refusals that any request may meet."""
WRITE = (*READ, 403)
SEND = (*WRITE, 413, 415, 422)
"""Of requests that bring a body."""

_models: dict[str, type[BaseModel]] = {}
_lists: dict[str, str] = {}


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # it registers itself
    """How a bearer token is told in the schema."""

    target_class = "tenancy.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:  # noqa: ARG002 - its signature
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An API token of the workspace or organization.",
        }


def operation(
    name: str,
    answers: Mapping[int, type[BaseModel] | Schema | None],
    *,
    body: type[BaseModel] | Schema | None = None,
    body_required: bool = True,
    parameters: Iterable[OpenApiParameter] = (),
    refusals: Iterable[int] = READ,
) -> Callable[[F], F]:
    """Describes a view's method: its name, answers by status, body, query parameters, and refusals."""

    def described(method: F) -> F:
        summary, _, rest = (method.__doc__ or "").strip().partition("\n\n")
        request = None if body is None else {JSON: reference(body)}
        decorated: F = extend_schema(
            operation_id=name,
            summary=summary,
            description=" ".join(rest.split()),
            parameters=list(parameters),
            request=request,
            responses={**_answers(answers), **_refusals(refusals)},
            extensions={} if body is None else {"x-body-required": body_required},
        )(method)
        return decorated

    return described


def _answers(answers: Mapping[int, type[BaseModel] | Schema | None]) -> dict[Any, OpenApiResponse]:
    found: dict[Any, OpenApiResponse] = {}
    for status, shape in answers.items():
        phrase = HTTPStatus(status).phrase
        key = status if shape is None else (status, JSON)
        found[key] = OpenApiResponse(None if shape is None else reference(shape), description=phrase)
    return found


def _refusals(statuses: Iterable[int]) -> dict[Any, OpenApiResponse]:
    return {
        (status, CONTENT_TYPE): OpenApiResponse(reference(Problem), description=HTTPStatus(status).phrase)
        for status in sorted(statuses)
    }


def reference(shape: type[BaseModel] | Schema) -> Schema:
    if isinstance(shape, dict):
        return shape
    _models[shape.__name__] = shape
    return {"$ref": REF + shape.__name__}


def list_of(model: type[BaseModel]) -> Schema:
    """A page of a list."""
    name = f"{model.__name__.removesuffix('Answer')}List"
    reference(model)
    _lists[name] = model.__name__
    return {"$ref": REF + name}


def _list_shape(item: str) -> Schema:
    return {
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": {"type": "array", "items": {"$ref": REF + item}},
            "next": {
                "type": ["string", "null"],
                "description": "`cursor` of the next page; null on the last.",
            },
        },
    }


def parameter(name: str, schema: Schema, description: str, **more: Any) -> OpenApiParameter:
    return OpenApiParameter(name, schema, description=description, **more)


def several(
    name: str, values: Iterable[str] | None, description: str, *, joined: bool = False
) -> OpenApiParameter:
    """A parameter that may be given several times, or once with commas (`joined`)."""
    items: Schema = {"type": "string"} if values is None else {"type": "string", "enum": list(values)}
    schema = {"type": "array", "items": items, "minItems": 1}
    return OpenApiParameter(name, schema, description=description, explode=not joined, style="form")


LIMIT = parameter(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT},
    f"Items a page; {DEFAULT_LIMIT} by default.",
)
CURSOR = parameter(
    "cursor", {"type": "integer", "minimum": 1, "maximum": LARGEST_CURSOR}, "`next` of the page before."
)
NAME_CURSOR = parameter("cursor", {"type": "string"}, "`next` of the page before.")
DRY_RUN = parameter("dry_run", {"type": "boolean"}, "Tell what it would do; change nothing.")
IDEMPOTENCY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "maxLength": 200, "pattern": "^[!-~]+$"},
    OpenApiParameter.HEADER,
    description="The same key with the same document submits once, however often it is sent.",
)
DOCUMENT_BODY: Schema = {"$ref": REF + DOCUMENT}


# --- The whole schema ---------------------------------------------------------------------------------


def complete(result: Schema, **_: Any) -> Schema:
    """drf-spectacular's last hook: the shapes by name, the log stream, which bodies may be left out."""
    result["components"].setdefault("schemas", {}).update(_components())
    result["paths"].update(log_streams({"$ref": REF + "Problem"}))
    for path in result["paths"].values():
        for each in path.values():
            if (required := each.pop("x-body-required", None)) is not None:
                each["requestBody"]["required"] = required
            if each.get("description") == each["summary"]:
                del each["description"]
    return result


def _components() -> dict[str, Schema]:
    inputs: list[tuple[type[BaseModel], Any]] = [(model, "validation") for model in _models.values()]
    _, made = models_json_schema(inputs, ref_template=REF + "{model}")
    shapes: dict[str, Schema] = tidied(made["$defs"])
    shapes["RunAnswer"]["properties"]["spec"] = {"$ref": REF + "RunSpec"}
    lists = {name: _list_shape(item) for name, item in _lists.items()}
    return {**shapes, **lists, **document_components()}


@cache
def document_components() -> dict[str, Schema]:
    """The run document's schema, its parts as components beside the others."""
    schema = _moved(run_schema())
    parts: dict[str, Schema] = schema.pop("$defs")
    del schema["$schema"]
    return {**parts, DOCUMENT: schema}


def _moved(node: Any) -> Any:
    if isinstance(node, list):
        return [_moved(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: re.sub(r"^#/\$defs/", REF, value) if key == "$ref" and isinstance(value, str) else _moved(value)
        for key, value in node.items()
    }
