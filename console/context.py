"""What every template may use."""

from django.http import HttpRequest

THEME_COOKIE = "theme"
THEMES = ("light", "dark")


def theme_of(request: HttpRequest) -> str:
    """`light` or `dark`; empty: as the system says."""
    theme = request.COOKIES.get(THEME_COOKIE, "")
    return theme if theme in THEMES else ""


def everywhere(request: HttpRequest) -> dict[str, object]:
    return {"theme": theme_of(request)}
