"""Cursor pages: stable while rows come and go, and as fast on the thousandth page as on the first."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.parameters import number

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
LARGEST_CURSOR = 2**62
PAGE_PARAMETERS = ("limit", "cursor")
M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    """Some rows, and the cursor of those that follow (None: these are the last)."""

    rows: list[M]
    next: str | None

    def answer(self, present: Callable[[M], Any]) -> Response:
        return list_answer(map(present, self.rows), self.next)


def list_answer(items: Iterable[Any], cursor: str | None = None) -> Response:
    """The shape of every list."""
    return Response({"items": list(items), "next": cursor})


def page_of(
    rows: QuerySet[M], request: Request, *, newest_first: bool = True, default: int = DEFAULT_LIMIT
) -> Page[M]:
    """One page of `rows` by id."""
    limit = number(request, "limit", default, MAX_LIMIT)
    cursor = number(request, "cursor", 0, LARGEST_CURSOR)
    if cursor:
        rows = rows.filter(id__lt=cursor) if newest_first else rows.filter(id__gt=cursor)
    found = list(rows.order_by("-id" if newest_first else "id")[: limit + 1])
    return Page(found[:limit], str(found[limit - 1].pk) if len(found) > limit else None)


def page_by_name(rows: QuerySet[M], request: Request) -> Page[M]:
    """One page of `rows` by their names; the cursor is the name of the last one shown."""
    limit = number(request, "limit", DEFAULT_LIMIT, MAX_LIMIT)
    found = list(rows.filter(name__gt=request.query_params.get("cursor", "")).order_by("name")[: limit + 1])
    more = len(found) > limit
    return Page(found[:limit], str(found[limit - 1].serializable_value("name")) if more else None)
