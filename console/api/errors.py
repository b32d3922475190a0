"""Addresses below /api/ that lead nowhere answer as the API does, not as a page."""

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from common.problem import problem_response


@csrf_exempt
def unknown_address(request: HttpRequest) -> JsonResponse:
    return problem_response(
        404, "No such address", f"The API has no {request.path}. /api/schema lists what it has.", errors=[]
    )
