"""Liveness and readiness."""

from django.db import Error, connection
from django.http import HttpRequest, JsonResponse


def healthz(request: HttpRequest) -> JsonResponse:  # noqa: ARG001 - Django's signature
    """The process answers."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:  # noqa: ARG001 - Django's signature
    """The database answers too. Redis may be away: everything goes on, only slower."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Error as error:
        return JsonResponse({"status": "unavailable", "detail": str(error)[:200]}, status=503)
    return JsonResponse({"status": "ok"})
