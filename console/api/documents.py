"""The API's own description: OpenAPI, the run document's JSON Schema, and pages to read them."""

from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import cache_control
from drf_spectacular.generators import SchemaGenerator

from console.api.errors import read_only
from wire.spec import run_schema

OPENAPI = "application/vnd.oai.openapi+json"
SCHEMA_JSON = "application/schema+json"


@cache
def openapi() -> dict[str, Any]:
    """Made once a process: it depends on nothing but the code."""
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return made


@read_only
@cache_control(public=True, max_age=300)
def openapi_schema(request: HttpRequest) -> HttpResponse:
    kind = OPENAPI if OPENAPI in request.headers.get("Accept", "") else "application/json"
    return JsonResponse(openapi(), content_type=kind)


@read_only
@cache_control(public=True, max_age=300)
def run_document_schema(request: HttpRequest) -> HttpResponse:  # noqa: ARG001 - Django's signature
    return JsonResponse(run_schema(), content_type=SCHEMA_JSON)


@read_only
@cache_control(private=True, no_cache=True)
def docs(request: HttpRequest) -> HttpResponse:
    """Swagger UI, from the package's own files, light or dark as the person chose."""
    return render(request, "api/docs.html")
