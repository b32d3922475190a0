"""What a page costs those who open it: few kilobytes, few requests, and nothing that moves under their eyes."""

import gzip

import pytest
from playwright.sync_api import expect

from tests.pages import scenes
from tests.pages.test_browser_looks import ON_ITS_WAY, PAGES

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

FIRST_LOAD = 150_000
"""Bytes, compressed, of a page with all that it loads."""
REQUESTS = 30
"""Distinct addresses: that a part is read again after its stream began is no weight of the page."""
SHIFT = 0.05
"""Of the cumulative layout shift; below 0.1 counts as good."""
EDITOR = ("/js/editor.js", "/js/document.js")
"""The JSON editor, which doesn't count."""

OBSERVED = """
window.shifts = [];
const outer = (each) => each.node?.outerHTML?.slice(0, 120);
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) {
    if (!each.hadRecentInput) window.shifts.push([each.value, ...each.sources.map(outer)]);
  }
}).observe({ type: "layout-shift", buffered: true });
"""
LOADED = "() => [location.href, ...performance.getEntriesByType('resource').map((each) => each.name)]"


def test_every_page_is_light_and_stands_still(house, browse):
    """On a phone, where texts wrap and little moves much."""
    scenes.metrics_draw(scenes.busy_cluster(house)["llm-7"])
    page = browse(house.ana, viewport={"width": 390, "height": 844})
    page.add_init_script(OBSERVED)
    sizes = sizes_kept(page)
    for address in PAGES:
        page.goto(address)
        page.wait_for_load_state("networkidle")
        expect(page.locator(ON_ITS_WAY)).to_have_count(0)
        loaded = page.evaluate(LOADED)
        counted = {each: sizes[each] for each in loaded if each in sizes and not each.endswith(EDITOR)}
        assert 20_000 < sum(counted.values()) <= FIRST_LOAD, (address, counted)
        assert len(set(loaded)) <= REQUESTS, (address, loaded)
        shifts = page.evaluate("window.shifts")
        assert sum(shift for shift, *_ in shifts) <= SHIFT, (address, shifts)
        assert page.errors == [], address


def sizes_kept(page):
    """Address → compressed bytes of all that the page has loaded; what is cached keeps its size."""
    sizes = {}

    def keep(request):
        answer = request.response()
        if answer is not None and answer.status in {200, 404}:
            sizes[answer.url] = len(gzip.compress(answer.body()))

    page.on("requestfinished", keep)
    return sizes
