"""Pages that change while one looks: only leaves are swapped, and a lost stream is told. Logs are drawn as text.

The streams themselves are ASGI and tested in tests/console; here the browser is given their answers.
"""

import pytest
from playwright.sync_api import expect

from runs.models import Run
from tests import factories as make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

W = "/o/acme/w/vision"
DDP = f"{W}/jobs/main/ddp-resnet50"
WORKER = f"{W}/workers/ddp-resnet50-0"
CHANGED = "document.body.dispatchEvent(new Event('run-changed'))"


@pytest.fixture
def pair(house):
    return [make.machine_make(house, f"gpu-0{number}") for number in (1, 2)]


def log_answer(page, body, **headers):
    page.unroute("**/logs?*")
    answer = {"status": 200, "body": body, "headers": {"X-Log-Offset": "0", "X-Log-Attempt": "1", **headers}}
    page.route("**/logs?*", lambda route: route.fulfill(**answer))


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


def test_a_log_is_drawn_as_text_with_colours_and_marks(house, pair, browse):
    make.run_start(make.run_place(house, make.run_pending(house), pair))
    page = browse(house.bea)
    log_answer(
        page,
        "plain <b>not bold</b>\n"
        "\x1b[1;31mred\x1b[0m and \x1b[38;5;46mgreen\x1b[0m \x1b[48;2;0;0;255mon blue\x1b[0m\n"
        "10%\r100%\n"
        "\x1b]0;title\x07\x07bell \u202etnorf\n"
        "RuntimeError: CUDA error: out of memory\n"
        "half a li",
    )
    page.goto(WORKER)
    lines = page.locator(".log .line")
    expect(lines).to_have_text(
        [
            "plain <b>not bold</b>",
            "red and green on blue",
            "100%",
            "␇bell ⟨U+202E⟩tnorf",
            "RuntimeError: CUDA error: out of memory",
            "half a li",
        ]
    )
    expect(page.locator(".ansi-bold.ansi-1")).to_have_text("red")
    expect(page.locator(".ansi-2")).to_have_text("green")
    expect(page.locator(".ansi-on-4")).to_have_text("on blue")
    expect(page.locator(".line.bad")).to_have_count(1)
    assert page.locator(".log b").count() == 0
    assert page.errors == []


def test_a_long_log_stays_bounded_and_at_its_end(house, pair, browse):
    make.run_start(make.run_place(house, make.run_pending(house), pair))
    page = browse(house.bea)
    log_answer(page, "".join(f"step {number}\n" for number in range(20_000)))
    page.goto(WORKER)
    expect(page.locator(".log .line").last).to_have_text("step 19999")
    assert page.locator(".log .line").count() == 5000
    box = page.locator(".log")
    at_end = "(box) => box.scrollHeight - box.scrollTop - box.clientHeight < 24"
    assert box.evaluate(at_end)
    box.evaluate("(box) => { box.scrollTop = 100; }")
    expect(page.locator("[data-follow]")).to_have_attribute("aria-pressed", "false")
    page.click("[data-follow]")
    expect(page.locator("[data-follow]")).to_have_attribute("aria-pressed", "true")
    assert box.evaluate(at_end)


def test_a_log_goes_on_where_the_connection_was_lost(house, pair, browse):
    make.run_start(make.run_place(house, make.run_pending(house), pair))
    page = browse(house.bea)
    page.unroute("**/logs?*")
    asked = []

    def answer(route):
        asked.append(route.request.url.partition("?")[2])
        if len(asked) == 1:
            route.abort()
        else:
            route.fulfill(status=200, body="one\n", headers={"X-Log-Offset": "500", "X-Log-Attempt": "1"})

    page.route("**/logs?*", answer)
    page.goto(WORKER)
    expect(page.locator(".log .line")).to_have_text(["one"])
    assert asked[:2] == ["follow=true&tail=5000"] * 2


def test_a_log_that_one_may_not_read_any_more_says_so(house, pair, browse):
    make.run_start(make.run_place(house, make.run_pending(house), pair))
    page = browse(house.bea)
    page.unroute("**/logs?*")
    page.route("**/logs?*", lambda route: route.fulfill(status=404, body=""))
    page.goto(WORKER)
    expect(page.locator("[data-note]")).to_have_text("This log is no longer here.")


def test_a_restarted_runs_log_goes_on_with_the_next_attempt(house, pair, browse):
    run = make.run_pending(house)
    make.run_fail(make.run_place(house, run, pair))
    page = browse(house.bea)
    log_answer(page, "first words\n")
    page.goto(DDP)
    expect(page.locator(".log .line")).to_have_text(["first words"])
    make.run_start(make.run_place(house, run, pair))
    log_answer(page, "second words\n", **{"X-Log-Attempt": "2"})
    page.evaluate(CHANGED)
    expect(page.locator(".log .line")).to_have_text(["first words", "second words"])
    expect(page.locator(".log .gap")).to_have_text("Attempt 2")


def test_a_sign_in_that_ends_is_told_on_the_next_change(house, browse):
    make.run_pending(house)
    page = browse(house.bea)
    page.goto(DDP)
    page.context.clear_cookies()
    page.evaluate(CHANGED)
    expect(page.locator("#alert")).to_contain_text(
        "You were signed out. Sign in again; what you typed is kept."
    )
