"""Cursor pages: stable while rows come and go, and as fast on the thousandth page as on the first."""

from typing import TypeVar

from django.db.models import Model, QuerySet
from rest_framework.request import Request

from common.errors import BadRequest, FieldError
from console.numbers import number_read

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
M = TypeVar("M", bound=Model)


def page_of(rows: QuerySet[M], request: Request) -> tuple[list[M], str | None]:
    """One page of `rows`, newest first, and the cursor of the next (None: this is the last)."""
    limit = _number(request, "limit", DEFAULT_LIMIT, MAX_LIMIT)
    cursor = _number(request, "cursor", 0, 2**62)
    if cursor:
        rows = rows.filter(id__lt=cursor)
    found = list(rows.order_by("-id")[: limit + 1])
    more = len(found) > limit
    return found[:limit], str(found[limit - 1].pk) if more else None


def _number(request: Request, name: str, default: int, most: int) -> int:
    value = request.query_params.get(name)
    if value is None:
        return default
    number = number_read(value, most)
    if number:
        return number
    message = f"`{name}` must be a number from 1 to {most}."
    raise BadRequest("bad_parameter", message, errors=(FieldError(name, "bad_parameter", message),))
