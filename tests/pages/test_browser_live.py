"""Pages that change while one looks: only leaves are swapped, and a lost stream is told.

The streams themselves are ASGI and tested in tests/console; here the browser is given their answers.
"""

import pytest
from playwright.sync_api import expect

from runs.models import Run
from tests import factories as make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

W = "/o/acme/w/vision"
DDP = f"{W}/jobs/main/ddp-resnet50"
CHANGED = "document.body.dispatchEvent(new Event('run-changed'))"


@pytest.fixture
def pair(house):
    return [make.machine_make(house, f"gpu-0{number}") for number in (1, 2)]


def test_a_run_that_starts_changes_its_leaves_title_and_icon(house, pair, browse):
    run = make.run_pending(house)
    page = browse(house.bea)
    page.goto(DDP)
    page.evaluate("document.querySelector('details').open = true")
    make.run_start(make.run_place(house, run, pair))
    page.evaluate(CHANGED)
    expect(page.locator("#run-state .chip")).to_have_text("Running")
    expect(page.locator("#w-machine-1")).to_have_text("gpu-02")
    expect(page.locator("#say")).to_have_text("ddp-resnet50 is Running: 2 of 2 workers running")
    assert page.title() == "Running · ddp-resnet50 · Astraeus"
    assert page.locator("#favicon").get_attribute("href").endswith("state-run.svg")
    assert page.evaluate("document.querySelector('details').open")
    assert page.errors == []


def test_what_holds_the_focus_stays(house, pair, browse):
    run = make.run_pending(house)
    page = browse(house.bea)
    page.goto(DDP)
    page.locator("#run-actions a").first.focus()
    make.run_start(make.run_place(house, run, pair))
    page.evaluate(CHANGED)
    expect(page.locator("#run-state .chip")).to_have_text("Running")
    expect(page.locator("#run-actions a").first).to_be_focused()


def test_new_runs_wait_behind_a_button(house, browse):
    first = make.run_pending(house, "first")
    page = browse(house.bea)
    page.goto(f"{W}/jobs")
    make.run_pending(house, "second")
    Run.objects.filter(id=first.id).update(state="Stopped", reason={"code": "stopped", "by": "bea"})
    page.evaluate("document.body.dispatchEvent(new Event('runs-changed'))")
    expect(page.locator(f"#state-{first.id}")).to_have_text("Stopped")
    expect(page.locator(f"#reason-{first.id}")).to_have_text("Stopped by bea")
    expect(page.locator("a.row-link")).to_have_count(1)
    page.click("text=1 new run. Show")
    expect(page.locator("a.row-link")).to_have_count(2)


def test_the_stream_says_read_again(house, pair, browse):
    run = make.run_pending(house)
    page = browse(house.bea)
    page.unroute("**/live/**")
    event = {"status": 200, "content_type": "text/event-stream", "body": "event: run\ndata: 1\n\n"}
    page.route("**/live/**", lambda route: route.fulfill(**event))
    page.goto(DDP)
    make.run_start(make.run_place(house, run, pair))
    expect(page.locator("#run-state .chip")).to_have_text("Running")


def test_a_lost_stream_is_told_after_ten_seconds(house, browse):
    make.run_pending(house)
    page = browse(house.bea)
    page.clock.install()
    page.goto(DDP)
    page.clock.run_for(5000)
    expect(page.locator("#live-lost")).to_have_count(0)
    page.clock.run_for(8000)
    expect(page.locator("#live-lost")).to_contain_text("No live updates since")
    expect(page.locator("#live-lost")).to_contain_text("Trying again.")


def test_live_updates_can_be_paused(house, browse):
    make.run_pending(house)
    page = browse(house.bea)
    page.goto(DDP)
    page.click("#live")
    expect(page.locator("#live")).to_contain_text("Paused at ")
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "false")


def test_a_sign_in_that_ends_is_told_on_the_next_change(house, browse):
    make.run_pending(house)
    page = browse(house.bea)
    page.goto(DDP)
    page.context.clear_cookies()
    page.evaluate(CHANGED)
    expect(page.locator("#alert")).to_contain_text(
        "You were signed out. Sign in again; what you typed is kept."
    )
