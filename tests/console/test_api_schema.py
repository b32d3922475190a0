"""What the API says of itself: OpenAPI, the run document's JSON Schema, the pages."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from django.contrib.staticfiles import finders

from console.api.documents import openapi
from tests import factories
from tests.console.test_core_api_rights import OPERATIONS
from wire.spec import run_schema

LOGS = {
    ("GET", "/api/v1/o/{organization}/w/{workspace}/workers/{worker}/logs"),
    ("GET", "/api/v1/o/{organization}/w/{workspace}/runs/{run}/logs"),
}


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): found
        for path, methods in openapi()["paths"].items()
        for method, found in methods.items()
    }


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def answer_schema(method: str, path: str, status: int) -> jsonschema.Draft202012Validator:
    """A validator of the JSON that the schema promises."""
    shape = operations()[method, path]["responses"][str(status)]["content"]["application/json"]["schema"]
    return jsonschema.Draft202012Validator(
        {**shape, "components": openapi()["components"]}, format_checker=jsonschema.FormatChecker()
    )


def test_it_is_openapi_3_1_with_every_operation_and_nothing_else():
    described = {
        (
            method,
            "/api/v1/"
            + pattern.replace("<slug:", "{").replace("<str:", "{").replace("<int:", "{").replace(">", "}"),
        )
        for method, pattern in OPERATIONS
    }
    assert openapi()["openapi"] == "3.1.0"
    assert set(operations()) == described | LOGS


def test_operations_stand_beside_those_on_the_same_things():
    tags = {path: found["tags"] for (_, path), found in operations().items()}
    organization = "/api/v1/o/{organization}"

    assert ["default"] not in tags.values()
    assert tags[f"{organization}/clusters"] == tags[f"{organization}/clusters/{{cluster}}"] == ["clusters"]
    assert tags[f"{organization}/clusters/{{cluster}}/pools"] == ["pools"]
    assert tags[f"{organization}/w/{{workspace}}/runs"] == ["runs"]


def test_every_reference_leads_somewhere():
    there = {f"#/components/schemas/{name}" for name in openapi()["components"]["schemas"]}
    assert set(references(openapi())) <= there


def test_every_operation_has_a_name_a_summary_security_and_its_refusals():
    found = operations()
    names = [each["operationId"] for each in found.values()]
    assert len(set(names)) == len(names)
    for each in found.values():
        assert each["summary"].endswith(".")
        assert each["security"] == [{"token": []}, {"cookieAuth": []}]
        assert {"401", "404"} <= set(each["responses"])
        if "requestBody" in each:
            assert {"403", "413", "415", "422"} <= set(each["responses"])


def test_the_run_document_is_embedded_by_reference():
    body = operations()["POST", "/api/v1/o/{organization}/w/{workspace}/runs"]["requestBody"]
    assert body["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/RunDocument"}
    whole = {"$ref": "#/components/schemas/RunDocument", "components": openapi()["components"]}
    validator = jsonschema.Draft202012Validator(whole)
    assert validator.is_valid(factories.document_make())
    assert not validator.is_valid(factories.document_make("Bad Name"))


@pytest.mark.parametrize(
    ("path", "kept"),
    [("/api/schema", "max-age=300"), ("/api/schema/run", "max-age=300"), ("/api/docs", "private")],
)
def test_it_is_served_to_anybody(client, path, kept):
    answer = client.get(path)

    assert answer.status_code == 200
    assert kept in answer.headers["Cache-Control"]


def test_the_run_document_s_schema_is_served_for_editors(client):
    answer = client.get("/api/schema/run")

    assert answer.headers["Content-Type"] == "application/schema+json"
    assert json.loads(answer.content) == run_schema()


def test_the_pages_files_come_from_a_package(client):
    page = client.get("/api/docs").content.decode()

    for name in ("swagger-ui.css", "swagger-ui-bundle.js"):
        assert f"drf_spectacular_sidecar/swagger-ui-dist/{name}" in page
        assert finders.find(f"drf_spectacular_sidecar/swagger-ui-dist/{name}")
    assert "<style" not in page
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.django_db
def test_answers_have_the_shapes_promised(running, house, api):
    """Of everything that reads, in a world where something runs."""
    client, known = api(house.ana), {"organization": "acme", "workspace": "vision", "cluster": "main"}
    known |= {"run": "ddp-resnet50", "worker": "ddp-resnet50-0", "machine": "gpu-01", "user": "bea"}
    factories.stores_make(house)
    known |= {"secret": "hf", "credential": "ngc", "drive": "imagenet", "fabric": "ib-a", "pool": "h100"}
    checked = 0
    for method, path in operations():
        if method != "GET" or "{token}" in path or (method, path) in LOGS:
            continue
        answer = client.get(path.format(**known))
        assert answer.status_code == 200, path
        errors = [error.message for error in answer_schema("GET", path, 200).iter_errors(answer.json())]
        assert errors == [], path
        checked += 1
    assert checked >= 17
