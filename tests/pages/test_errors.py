"""Trouble in words: what is not there, what may not be done, what failed on our side."""

import html
import logging
import re

import pytest
from django.test import Client
from django.urls import path

from console import urls
from console.pages.errors import page


def boom(request):
    return 1 / 0


urlpatterns = [path("api/boom", boom), *urls.urlpatterns, path("boom", boom)]
handler500 = urls.handler500


def text(answer):
    return html.unescape(answer.content.decode())


def test_not_found_says_what_may_be_the_cause(bea):
    answer = bea.get("/nothing/here")
    assert answer.status_code == 404
    assert "The address may be wrong, it may have been deleted, or your role does not reach it." in text(
        answer
    )


def test_not_found_for_nobody_shows_no_menu(db):
    answer = Client().get("/nothing/here")
    assert answer.status_code == 404
    assert "Sign out" not in text(answer)


@pytest.mark.urls("tests.pages.test_errors")
def test_our_failure_has_a_reference_that_the_log_knows(bea, caplog):
    bea.raise_request_exception = False
    with caplog.at_level(logging.ERROR):
        answer = bea.get("/boom")
    assert answer.status_code == 500
    page = text(answer)
    assert "This failed on our side; nothing was changed." in page
    reference = re.search(r"<code>([0-9a-f]{4}-[0-9a-f]{4})</code>", page)[1]
    assert f"reference {reference}: GET /boom failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert "ZeroDivisionError" not in page


@pytest.mark.urls("tests.pages.test_errors")
def test_our_failure_is_said_to_programs_as_json(caplog):
    with caplog.at_level(logging.ERROR):
        answer = Client(raise_request_exception=False).get("/api/boom")
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
    assert f"reference {answer.json()['reference']}: GET /api/boom failed" in caplog.text


@pytest.mark.urls("tests.pages.test_errors")
def test_our_failure_reads_no_database(bea, django_assert_num_queries):
    client = Client(raise_request_exception=False)
    with django_assert_num_queries(0):
        assert client.get("/boom").status_code == 500


def test_every_page_has_the_strict_policy_and_nothing_inline(bea):
    answer = bea.get("/o/acme/w/vision/jobs/new")
    assert "default-src 'none'" in answer["Content-Security-Policy"]
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text(answer))
    assert not re.search(r"(src|href)=\"(https?:)?//", text(answer))


def test_no_page_is_kept_by_caches(bea):
    answer = bea.get("/o/acme/w/vision/jobs")
    assert "private" in answer["Cache-Control"]
    assert {"Cookie", "HX-Request"} <= {each.strip() for each in answer["Vary"].split(",")}


@pytest.mark.parametrize(
    "address", ["/o/acme/w/vision/jobs?text=%00", "/o/acme/clusters/main/machines?after=%00"]
)
def test_a_nul_in_an_address_is_no_failure_of_ours(bea, address):
    assert bea.get(address).status_code == 400


def test_a_nul_in_the_name_of_a_field_is_no_failure_of_ours(house, ana):
    order = {"name": "fast", "may-vision\0": "yes"}
    assert ana.post("/o/acme/clusters/main/pools", order).status_code == 400


def test_the_wrapper_keeps_a_views_name():
    @page
    def some_view(request):
        raise NotImplementedError

    assert some_view.__name__ == "some_view"


def test_what_was_typed_into_any_form_outlives_the_sign_in(house, ana):
    address = "/o/acme/clusters/main/machines/gpu-01/cordon?from=list"
    answer = Client().post(address, {"reason": "changing </textarea> a cable", "csrfmiddlewaretoken": "x"})
    page = answer.content.decode()
    assert answer.status_code == 401
    assert f'action="{address}"' in page
    assert re.search(r'name="reason"[^>]*>\s*changing &lt;/textarea&gt; a cable</textarea>', page)
    assert "csrfmiddlewaretoken" not in re.sub(
        r'<input type="hidden" name="csrfmiddlewaretoken"[^>]*>', "", page
    )


def test_secrets_are_not_handed_back(house):
    answer = Client().post("/o/acme/w/vision/settings/secrets", {"name": "hf", "value": "hf_abc"})
    page = answer.content.decode()
    assert "Secrets are not: type them again." in page
    assert ">\nhf</textarea>" in page
    assert "hf_abc" not in page
