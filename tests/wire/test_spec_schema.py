"""The JSON Schema that drives the editor."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from wire.spec import run_schema


def objects(node: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property of every object in the schema, by name."""
    if isinstance(node, dict):
        yield from node.get("properties", {}).items()
        for value in node.values():
            yield from objects(value)
    elif isinstance(node, list):
        for item in node:
            yield from objects(item)


@pytest.fixture
def validator() -> jsonschema.Draft202012Validator:
    schema = run_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_every_field_has_a_title_and_a_description():
    fields = list(objects(run_schema()))

    assert len(fields) > 80
    assert [name for name, schema in fields if not (schema.get("title") and schema.get("description"))] == []


def test_it_says_values_defaults_and_bounds():
    spec = run_schema()["$defs"]["RunSpec"]["properties"]

    assert spec["start"]["enum"] == ["Gang", "Independent"]
    assert spec["start"]["default"] == "Gang"
    assert (spec["max_restarts"]["minimum"], spec["max_restarts"]["maximum"]) == (0, 1000)


def test_it_accepts_the_reference(validator, reference_text):
    assert list(validator.iter_errors(json.loads(reference_text))) == []


@pytest.mark.parametrize(
    "metadata",
    [
        {"name": "Upper"},
        {"name": "a" * 53},
        {"name": "a", "labels": {"-": "x"}},
        {"name": "a", "labels": {"x": "-"}},
        {"name": "a", "colour": "red"},
    ],
)
def test_it_refuses_what_the_validator_refuses(validator, smallest, metadata):
    smallest["metadata"] = metadata

    assert not validator.is_valid(smallest)
