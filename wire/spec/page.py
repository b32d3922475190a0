"""docs/run-document.md: every field of the run document, written from its schema."""

import json
from collections.abc import Iterator
from typing import Any, Final

from wire.spec.base import Part
from wire.spec.document import RunDocument
from wire.spec.errors import Location
from wire.spec.fields import ANY_ITEM, objects
from wire.spec.schema import run_schema

Schema = dict[str, Any]

_HEAD: Final = """\
# The run document

Every field of the JSON document that `POST …/runs` and `astra astraeus submit` take. `./dev docs` writes this page from
the document's JSON Schema, which a console serves at `/api/schema/run`: an editor that is told this address completes
and checks while you type. `astra astraeus validate run.json` checks the rules between fields, too, offline.

Unknown fields are errors. Defaults are filled in on submission and shown with the run.
"""


def run_document_page() -> str:
    """The page in Markdown."""
    schema = run_schema()
    return "\n".join([_HEAD, *(_section(schema, model, places) for model, places in _models().items())])


def _models() -> dict[type[Part], list[Location]]:
    """Every object of the document, top down, with the places where it stands."""
    found: dict[type[Part], list[Location]] = {}
    for place, model in objects((), RunDocument):
        found.setdefault(model, []).append(place)
    return found


def _section(schema: Schema, model: type[Part], places: list[Location]) -> str:
    shape = schema["$defs"].get(model.__name__, schema)
    first, *others = (f"`{_path(place)}`" for place in places)
    also = [f"Also: {', '.join(others)}.", ""] if others else []
    required = shape.get("required", [])
    rows = [_row(schema, name, field, name in required) for name, field in shape["properties"].items()]
    heading = f"## {first}" if places[0] else "## The document"
    table = ["| field | values | default | meaning |", "|---|---|---|---|", *rows]
    return "\n".join([heading, "", shape["description"], "", *also, *table, ""])


def _path(place: Location) -> str:
    return ".".join(str(step) for step in place).replace(f".{ANY_ITEM}", "[]")


def _row(schema: Schema, name: str, field: Schema, required: bool) -> str:
    default = "**required**" if required else _default(schema, field)
    cells = (f"`{name}`", _values(schema, field), default, _meaning(field))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _meaning(field: Schema) -> str:
    return f"{field['title']}. {field['description']}"


def _default(schema: Schema, field: Schema) -> str:
    if "default" in field:
        return f"`{json.dumps(field['default'])}`"
    return (
        "its fields' defaults" if "$ref" in field and not _resolved(schema, field).get("required") else "none"
    )


def _resolved(schema: Schema, field: Schema) -> Schema:
    found: Schema = schema["$defs"][field["$ref"].rpartition("/")[2]]
    return found


def _values(schema: Schema, field: Schema) -> str:
    if "anyOf" in field:
        return " or ".join(_values(schema, each) for each in field["anyOf"] if each.get("type") != "null")
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "$ref" in field:
        return "object"
    return _KINDS[field["type"]](schema, field)


def _number(_: Schema, field: Schema) -> str:
    return f"{field['minimum']:,} to {field['maximum']:,}"


def _text(_: Schema, field: Schema) -> str:
    return f"text, at most {field['maxLength']:,} characters" if "maxLength" in field else "text"


def _list(schema: Schema, field: Schema) -> str:
    inner = _values(schema, field["items"])
    return "list of objects" if inner == "object" else f"list: {inner}"


def _map(schema: Schema, field: Schema) -> str:
    inner = {_values(schema, each) for each in _items(field)}
    return f"map of names to {' or '.join(sorted(inner))}"


def _items(field: Schema) -> Iterator[Schema]:
    yield from field.get("patternProperties", {}).values()


_KINDS: Final = {
    "integer": _number,
    "string": _text,
    "boolean": lambda *_: "`true`, `false`",
    "array": _list,
    "object": _map,
}
