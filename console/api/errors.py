"""Addresses and methods that the API does not have: answered as the API answers, not as a page."""

from collections.abc import Callable
from functools import wraps

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from common.problem import problem_response
from wire.names import shown

LONGEST_PATH = 200


@csrf_exempt
def unknown_address(request: HttpRequest) -> JsonResponse:
    detail = f"The API has no {shown(request.path, LONGEST_PATH)[1:-1]}. /api/schema lists what it has."
    return problem_response(404, "No such address", detail, errors=[])


def read_only(view: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """A view that only answers GET and HEAD."""

    @csrf_exempt
    @wraps(view)
    def wrapped(request: HttpRequest) -> HttpResponse:
        if request.method in {"GET", "HEAD"}:
            return view(request)
        refused = problem_response(405, "Wrong method", f"{request.path} is only read: use GET.", errors=[])
        refused.headers["Allow"] = "GET, HEAD"
        return refused

    return wrapped
