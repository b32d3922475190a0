"""What drf-spectacular can't see: the run document and the answers built from it."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from wire.spec import run_schema


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # it registers itself
    """How a bearer token is told in the schema."""

    target_class = "tenancy.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:  # noqa: ARG002 - its signature
        return {"type": "http", "scheme": "bearer"}


def _document() -> dict[str, Any]:
    return {"application/json": run_schema()}


DOCUMENT = _document()
OBJECT = OpenApiResponse(OpenApiTypes.OBJECT)
RUN = OpenApiResponse(OpenApiTypes.OBJECT, description="The run: metadata, spec and status.")
RUN_PAGE = OpenApiResponse(
    OpenApiTypes.OBJECT, description="`items`, and `next`: the cursor of the next page."
)
RUN_LIST = [
    OpenApiParameter("state", str, description="Only runs in this state; several separated by commas."),
    OpenApiParameter("label", str, description="Only runs with this label, `key=value`; may be repeated."),
    OpenApiParameter("q", str, description="Only runs whose name contains this."),
    OpenApiParameter("cluster", str, description="Only runs of this cluster."),
    OpenApiParameter("limit", int, description="Runs a page, 1 to 500; 50 by default."),
    OpenApiParameter("cursor", int, description="`next` of the page before."),
]
SUBMIT = [
    OpenApiParameter(
        "Idempotency-Key",
        str,
        OpenApiParameter.HEADER,
        description="The same key with the same document submits once, however often it is sent.",
    )
]
