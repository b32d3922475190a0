"""The document's JSON Schema, for the editor, the form, the documentation and other programs."""

from typing import Any, Final

from wire.spec.document import RunDocument
from wire.spec.fields import objects

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def run_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a submitted document. The rules between fields are not in it."""
    schema: dict[str, Any] = tidied(RunDocument.model_json_schema(mode="validation"))
    _add_words(schema)
    about = {"title": "Astraeus run", "description": "A run: what it is called, what is run, and how."}
    return {"$schema": DIALECT, **schema, **about}


def _add_words(schema: dict[str, Any]) -> None:
    """Pydantic leaves out the words of fields that refer to another object."""
    for _, model in objects((), RunDocument):
        properties = schema["$defs"].get(model.__name__, schema)["properties"]
        for name, field in model.model_fields.items():
            properties[name] |= {"title": field.title, "description": field.description}


def tidied(node: Any) -> Any:
    if isinstance(node, list):
        return [tidied(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: tidied(value) for key, value in node.items() if not (key == "default" and value is None)}
    if "patternProperties" in kept:
        # Without it every key that misses the pattern would pass.
        kept["additionalProperties"] = False
    return kept
