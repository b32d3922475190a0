"""The API's reference in a real browser: all of it shows under our Content Security Policy."""

import pytest

from console.api.documents import openapi

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
