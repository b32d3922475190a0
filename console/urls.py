"""Every address of the console. The agents' channel and the streams are mounted before it, in asgi.py."""

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

from console import health

urlpatterns = [
    # For machines: health, and the API.
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("api/schema", SpectacularAPIView.as_view(), name="schema"),
    path("api/v1/", include("console.api.urls")),
    # For people: pages, sign-in included.
    path("", include("console.pages.urls")),
]

handler400 = "console.pages.errors.bad_request"
handler403 = "console.pages.errors.forbidden"
handler404 = "console.pages.errors.not_found"
handler500 = "console.pages.errors.server_error"
