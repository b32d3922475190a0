"""Every address of the console. The agents' channel and the streams are mounted before it, in asgi.py."""

from django.urls import include, path, re_path

from console import health
from console.api import documents
from console.api.errors import unknown_address

urlpatterns = [
    # For machines: health, and the API.
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("api/schema", documents.openapi_schema, name="schema"),
    path("api/schema/run", documents.run_document_schema, name="run_schema"),
    path("api/docs", documents.docs, name="api_docs"),
    path("api/v1/", include("console.api.urls")),
    re_path(r"^api(?:/|$)", unknown_address),
    # For people: pages, sign-in included.
    path("", include("console.pages.urls")),
]

handler400 = "console.pages.errors.bad_request"
handler403 = "console.pages.errors.forbidden"
handler404 = "console.pages.errors.not_found"
handler500 = "console.pages.errors.server_error"
