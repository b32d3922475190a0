"""RFC 9457 `application/problem+json`: the one shape of every error of the API."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.http import Http404, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response

from common.errors import DomainError

CONTENT_TYPE = "application/problem+json"


def problem(status: int, title: str, detail: str, **extra: Any) -> dict[str, Any]:
    return {"type": "about:blank", "title": title, "status": status, "detail": detail, **extra}


def problem_of(error: DomainError) -> dict[str, Any]:
    found = [each.as_data() for each in error.errors]
    return problem(error.status, error.title, error.message, code=error.code, errors=found, **error.extra)


def problem_response(status: int, title: str, detail: str, **extra: Any) -> JsonResponse:
    """For answers made outside of DRF (unknown addresses of the API, the log streams)."""
    return JsonResponse(problem(status, title, detail, **extra), status=status, content_type=CONTENT_TYPE)


def _title(error: exceptions.APIException) -> str:
    """The kind of error; some of DRF's own titles are patterns that only its details fill."""
    title = str(error.default_detail)
    return HTTPStatus(error.status_code).phrase if "{" in title else title


def exception_handler(error: Exception, _context: Mapping[str, Any]) -> Response | None:
    """DRF's hook. None leaves the error to Django's 500 handling."""
    if isinstance(error, DomainError):
        return Response(problem_of(error), status=error.status, content_type=CONTENT_TYPE)
    if isinstance(error, Http404):
        error = exceptions.NotFound("Nothing here that you may see.")
    if not isinstance(error, exceptions.APIException):
        return None
    headers = {}
    if isinstance(error, exceptions.NotAuthenticated | exceptions.AuthenticationFailed):
        headers["WWW-Authenticate"] = "Bearer"
    if wait := getattr(error, "wait", None):  # of a request that came too often
        headers["Retry-After"] = str(int(wait) + 1)
    status = 401 if "WWW-Authenticate" in headers else error.status_code
    body = problem(status, _title(error), str(error.detail), code=error.default_code, errors=[])
    return Response(body, status=status, headers=headers, content_type=CONTENT_TYPE)
