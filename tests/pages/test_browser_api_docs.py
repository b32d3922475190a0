"""The API's reference in a real browser: all of it shows under our Content Security Policy."""

import re

import pytest

from console.api.documents import openapi

COLOURS = """() => [getComputedStyle(document.documentElement).backgroundColor,
  getComputedStyle(document.querySelector(".opblock-tag")).color]"""


def brightness(colour: str) -> float:
    """From 0 to 1, of "rgb(28, 32, 34)"; what nothing paints is the page's white."""
    numbers = [float(each) for each in re.findall(r"[0-9.]+", colour)]
    return 1.0 if numbers[3:] == [0.0] else sum(numbers[:3]) / 3 / 255


pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_the_reference_shows_every_operation_and_nothing_is_blocked(house, browse):
    page = browse(house.ana)
    page.goto("/o/acme/w/vision/jobs")
    page.click("summary:has-text('ana')")
    with page.expect_response("**/api/docs") as answered:
        page.click("a:has-text('API reference')")
    answer = answered.value
    page.wait_for_selector(".opblock", timeout=30_000)  # a megabyte of script, and the first description

    assert "script-src 'self'; style-src 'self'" in answer.headers["content-security-policy"]
    assert page.locator(".opblock").count() == sum(map(len, openapi()["paths"].values()))
    page.locator("#operations-runs-runs_submit .opblock-summary-control").click()
    page.locator("#operations-runs-runs_submit .responses-table").wait_for()
    assert page.errors == []

    page.get_by_role("link", name="Back to the console").click()
    page.wait_for_url("**/o/acme/w/vision/jobs")


@pytest.mark.parametrize(
    ("chosen", "system", "dark"),
    [("dark", "light", True), ("light", "dark", False), ("", "dark", True), ("", "light", False)],
)
def test_it_is_dark_where_the_console_is(house, browse, live_server, chosen, system, dark):
    page = browse(house.ana, color_scheme=system)
    if chosen:
        page.context.add_cookies([{"name": "theme", "value": chosen, "url": live_server.url}])
    page.goto("/api/docs")
    page.wait_for_selector(".opblock", timeout=30_000)
    ground, words = page.evaluate(COLOURS)
    assert (brightness(ground) < 0.2, brightness(words) > 0.8) == (dark, dark)
    assert page.errors == []
