"""One small world for all page tests, and browsers of its people."""

import os

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import expect, sync_playwright

from common import clock
from tests.pages import scenes
from tests.support.fixtures import house, static_root

__all__ = ["house", "static_root"]

PATIENCE_MS = 30_000
"""For what a page does: the machine may be busy with other tests."""
CHROMIUM = "/usr/bin/chromium"
CHROMIUM_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(autouse=True)
def one_clock(monkeypatch):
    """The database is asked for its time once: pages take the same queries however slow a test is."""
    monkeypatch.setattr(clock, "ANCHOR_SECONDS", 3600)


@pytest.fixture
def busy(house):
    """The house with a bit of everything going on."""
    scenes.busy_cluster(house)
    return house


@pytest.fixture
def ana(house):
    """Signed in as the organization's owner."""
    return signed_in(house.ana)


@pytest.fixture
def bea(house):
    """Signed in as the workspace's editor."""
    return signed_in(house.bea)


@pytest.fixture
def vic(house):
    """Signed in as the workspace's viewer."""
    return signed_in(house.vic)


@pytest.fixture
def cyd(house):
    """Signed in as a stranger."""
    return signed_in(house.cyd)


def signed_in(user):
    client = Client()
    client.force_login(user, backend="allauth.account.auth_backends.AuthenticationBackend")
    return client


@pytest.fixture(scope="session")
def chromium():
    """Debian's Chromium; it talks to nobody but the test's own server."""
    # Playwright's event loop runs in this thread, and Django would refuse the tests' own queries beside it.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def browsing(chromium):
    """`browsing(server, user, **options)`: a page of a fresh browser in which `user` is signed in (None: nobody is)."""
    contexts = []

    def start(server, user=None, *, theme=None, **options):
        context = chromium.new_context(base_url=server.url, **options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        if user is not None:
            session = signed_in(user).cookies[settings.SESSION_COOKIE_NAME].value
            context.add_cookies([cookie(server, settings.SESSION_COOKIE_NAME, session)])
        if theme is not None:
            context.add_cookies([cookie(server, "theme", theme)])
        page = context.new_page()
        page.errors = []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("console", lambda message: note(page, message))
        return page

    yield start
    for context in contexts:
        context.close()


@pytest.fixture
def browse(browsing, live_server):
    """`browse(user, **options)`: the same of Django's own test server."""

    def start(user=None, **options):
        page = browsing(live_server, user, **options)
        # The streams are an ASGI matter; test_browser_stream.py looks at them.
        page.route("**/live/**", lambda route: route.fulfill(status=204))
        return page

    return start


def note(page, message):
    """Keeps what a Content Security Policy or a broken script prints."""
    if message.type == "error" and "Failed to load resource" not in message.text:
        page.errors.append(message.text)


def cookie(server, name, value):
    return {"name": name, "value": value, "url": server.url}
