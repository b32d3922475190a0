"""Configuration mistakes, told at the start with an id and what to do (`manage.py check --deploy`)."""

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register

SHORTEST_KEY = 32
WEAK_KEYS = ("django-insecure", "changeme", "secret")
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@register(Tags.security, deploy=True)
def public_url_is_https(**_: Any) -> list[CheckMessage]:
    url = urlsplit(settings.PUBLIC_URL)
    if url.scheme == "https" or url.hostname in LOOPBACK:
        return []
    return [
        checks.Warning(
            f"ASTRAEUS_PUBLIC_URL is {settings.PUBLIC_URL}: passwords and tokens would cross the network unencrypted.",
            hint="Put a TLS proxy in front and set ASTRAEUS_PUBLIC_URL to its https:// address.",
            id="astraeus.W001",
        )
    ]


@register(Tags.security)
def secret_key_is_secret(**_: Any) -> list[CheckMessage]:
    key = settings.SECRET_KEY.lower()
    if len(key) >= SHORTEST_KEY and not any(weak in key for weak in WEAK_KEYS):
        return []
    return [
        Error(
            "ASTRAEUS_SECRET_KEY is too short or a well-known value: sessions and sign-in links could be forged.",
            hint="Set it to at least 50 random characters: "
            "python -c 'import secrets; print(secrets.token_urlsafe(50))' prints some.",
            id="astraeus.E001",
        )
    ]


@register(Tags.security)
def encryption_keys_are_secret(**_: Any) -> list[CheckMessage]:
    if all(len(key) >= SHORTEST_KEY for key in settings.ENCRYPTION_KEYS):
        return []
    return [
        Error(
            "ASTRAEUS_ENCRYPTION_KEY, or one of ASTRAEUS_OLD_ENCRYPTION_KEYS, is too short: who has a copy of the "
            "database could guess it and read the secrets in it.",
            hint=f"Use at least {SHORTEST_KEY} random characters for each.",
            id="astraeus.E003",
        )
    ]


@register(Tags.security, deploy=True)
def demo_login_is_off(**_: Any) -> list[CheckMessage]:
    if not settings.DEMO_LOGIN or urlsplit(settings.PUBLIC_URL).hostname in LOOPBACK:
        return []
    return [
        Error(
            "ASTRAEUS_DEMO_LOGIN is 1 on a console that others can reach: sign-in links of the demo would work.",
            hint="Unset ASTRAEUS_DEMO_LOGIN.",
            id="astraeus.E002",
        )
    ]
