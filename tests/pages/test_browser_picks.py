"""Runs are ticked in the list and stopped together: by mouse, by keyboard, without JavaScript, and while it is live."""

import pytest
from playwright.sync_api import expect

from runs.models import Run
from tests import factories as make
from tests.pages.test_browser_looks import violations

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

RUNS = "/o/acme/w/vision/jobs"


@pytest.fixture
def runs(house):
    """From the oldest on: llm-7 runs on 16 GPUs, then four that wait."""
    pair = [make.machine_make(house, f"gpu-0{number}") for number in (1, 2)]
    make.run_start(make.run_place(house, make.run_pending(house, "llm-7"), pair))
    for number in range(4):
        make.run_pending(house, f"ddp-{number}")
    return house


def box(page, name):
    return page.get_by_role("checkbox", name=f"Select {name}", exact=True)


def ticked(page):
    return sorted(
        each.split(":")[1]
        for each in page.locator("[data-pick]:checked").evaluate_all("boxes => boxes.map(box => box.value)")
    )


def stopped():
    return sorted(Run.objects.filter(wanted="stop").values_list("name", flat=True))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_ticked_runs_are_stopped_after_a_question(runs, browse, theme):
    page = browse(runs.bea, theme=theme)
    page.goto(f"{RUNS}?owner=bea")
    expect(page.locator("[data-stop]")).to_be_hidden()
    box(page, "llm-7").check()
    box(page, "ddp-1").check()
    expect(page.locator("#say")).to_have_text("2 runs selected")
    assert violations(page) == []
    page.get_by_role("button", name="Stop 2 runs…").click()
    dialog = page.locator("dialog[open]", has_text="Stop 2 runs?")
    expect(dialog).to_contain_text("1 is running and frees 16 GPUs; 1 is waiting.")
    expect(dialog.get_by_role("link", name="Keep running")).to_be_focused()
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert (ticked(page), stopped()) == (["ddp-1", "llm-7"], [])
    page.get_by_role("button", name="Stop 2 runs…").click()
    dialog.get_by_role("button", name="Stop 2 runs").click()
    page.wait_for_url(f"**{RUNS}?owner=bea")
    expect(page.locator(".notice")).to_have_text("ddp-1 and llm-7 are being stopped.")
    assert (ticked(page), stopped()) == ([], ["ddp-1", "llm-7"])
    assert page.errors == []


def test_a_selection_says_that_it_is_this_page_s_own(runs, browse, monkeypatch):
    monkeypatch.setattr("console.pages.run_list.PAGE_SIZE", 3)
    page = browse(runs.bea)
    page.goto(RUNS)
    box(page, "ddp-1").check()
    expect(page.locator("[data-picked]")).to_have_text("1 selected. Another page starts with none.")
    page.get_by_role("link", name="Older").click()
    expect(box(page, "ddp-0")).not_to_be_checked()
    expect(page.locator("[data-picked]")).to_be_empty()


def test_a_selection_outlives_the_lists_changes(runs, browse):
    page = browse(runs.bea)
    page.goto(RUNS)
    for name in ("llm-7", "ddp-2"):
        box(page, name).check()
    Run.objects.filter(name__in=["ddp-2", "ddp-3"]).update(state="Stopped")
    make.run_pending(runs, "newcomer")
    page.evaluate("document.body.dispatchEvent(new Event('runs-changed'))")
    expect(page.locator("#fresh")).to_contain_text("1 new run. Show")
    expect(box(page, "ddp-3")).to_be_disabled()
    expect(page.locator("[data-picked]")).to_have_text("2 selected")
    assert ticked(page) == ["ddp-2", "llm-7"]
    page.get_by_role("button", name="Stop 2 runs…").click()
    dialog = page.locator("dialog[open]")
    expect(dialog.locator("h2")).to_have_text("Stop llm-7?")
    expect(dialog).to_contain_text("Not stopped: ddp-2 (ended already: Stopped).")


def test_all_that_are_shown_and_ranges(runs, browse):
    Run.objects.filter(name="ddp-3").update(state="Stopped")
    page = browse(runs.bea)
    page.goto(RUNS)
    everything = page.get_by_role("checkbox", name="Select all runs shown")
    everything.check()
    assert ticked(page) == ["ddp-0", "ddp-1", "ddp-2", "llm-7"]
    box(page, "ddp-1").uncheck()
    assert everything.evaluate("box => box.indeterminate")
    page.get_by_role("button", name="Clear selection").click()
    assert ticked(page) == []
    expect(page.locator("[data-stop]")).to_be_hidden()
    box(page, "ddp-2").click()
    box(page, "ddp-0").click(modifiers=["Shift"])
    assert ticked(page) == ["ddp-0", "ddp-1", "ddp-2"]
    box(page, "ddp-1").click(modifiers=["Shift"])
    assert ticked(page) == ["ddp-2"]


def test_by_keyboard_only(runs, browse):
    page = browse(runs.bea)
    page.goto(RUNS)
    page.keyboard.press("j")
    page.keyboard.press("Shift+Tab")
    expect(box(page, "ddp-3")).to_be_focused()
    page.keyboard.press("Space")
    page.keyboard.press("Escape")
    assert ticked(page) == []
    page.keyboard.press("Space")
    page.keyboard.press("j")
    expect(page.locator("a.row-link").nth(1)).to_be_focused()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_contain_text("Stop the selected runs")
    page.keyboard.press("Escape")
    page.keyboard.press("x")
    dialog = page.locator("dialog[open]", has_text="Stop ddp-3?")
    expect(dialog.get_by_role("link", name="Keep running")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".notice")).to_have_text("ddp-3 is being stopped.")
    assert stopped() == ["ddp-3"]


def test_without_javascript(runs, browse):
    page = browse(runs.bea, java_script_enabled=False)
    page.goto(f"{RUNS}?state=Pending")
    box(page, "ddp-0").check()
    box(page, "ddp-3").check()
    page.get_by_role("button", name="Stop selected runs…").click()
    expect(page.locator("h1")).to_have_text("Stop 2 runs?")
    expect(page.locator(".question")).to_contain_text("2 are waiting.")
    page.get_by_role("link", name="Keep running").click()
    page.wait_for_url(f"**{RUNS}?state=Pending")
    box(page, "ddp-0").check()
    page.get_by_role("button", name="Stop selected runs…").click()
    page.get_by_role("button", name="Stop 1 run").click()
    page.wait_for_url(f"**{RUNS}?state=Pending")
    expect(page.locator(".notice")).to_have_text("ddp-0 is being stopped.")
    assert stopped() == ["ddp-0"]


def test_the_bar_stays_in_sight_and_covers_no_focus(runs, browse):
    for number in range(40):
        make.run_pending(runs, f"more-{number}")
    page = browse(runs.bea, viewport={"width": 390, "height": 700})
    page.goto(RUNS)
    box(page, "more-39").check()
    expect(page.get_by_role("button", name="Stop 1 run…")).to_be_in_viewport()
    names = page.locator("a.row-link")
    for _ in range(20):
        page.keyboard.press("j")
    expect(names.nth(20)).to_be_focused()
    assert page.evaluate(
        """() => {
            const bar = document.querySelector(".list-foot").getBoundingClientRect();
            return document.activeElement.getBoundingClientRect().bottom <= bar.top;
        }"""
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
