"""Every page while all that people and machines can name or say is hostile: it is text there, and nothing else."""

import pytest
from playwright.sync_api import expect

from tests.pages import hostile
from tests.pages.test_browser_looks import ON_ITS_WAY, PAGES, M, W

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

MORE = [f"{W}/jobs/queue", f"{M}/map", f"{M}/map?by=holder", f"{M}/gpu-01", f"{W}/workers/eval-3-0"]

HURT = "() => document.querySelectorAll('[data-hurt], img[onerror], a[href^=javascript]').length"
WIDE = """() => [...document.querySelectorAll("body *")].filter((each) => {
  const reaches = each.getBoundingClientRect().right > 391 || each.scrollWidth > 391;
  return reaches && ![...each.children].some((inner) => inner.getBoundingClientRect().right > 391);
}).map((each) => `${each.parentElement.tagName}.${each.parentElement.className} ${each.outerHTML.slice(0, 80)}`)"""
"""The innermost elements that reach out of the page."""
UNBOUND = """([end]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) {
    const text = texts.currentNode;
    const holder = text.parentElement;
    if (!text.data.trim().endsWith(end) || holder.closest("script, style, option, title, textarea, pre, svg")) continue;
    if (!holder.checkVisibility()) continue;
    let around = holder;
    while (getComputedStyle(around).unicodeBidi === "normal") around = around.parentElement;
    const rest = document.createRange();
    rest.setStartAfter(text);
    rest.setEndAfter(around.lastChild);
    if (/[^\\s.,:;”)]/.test(rest.toString())) found.push(holder.outerHTML.slice(-160));
  }
  return found;
}"""
"""Hostile names and notes behind which the line goes on although nothing isolates them."""
CUT = """([begin, end]) => [...document.querySelectorAll("[title], [aria-label], [data-copy]")].flatMap((each) =>
  ["title", "aria-label", "data-copy"].map((name) => each.getAttribute(name)).filter(
    (text) => text && text.includes(begin) && !text.includes(end)))"""


def test_nothing_hostile_does_anything_on_any_page(house, browse):
    hostile.hostile_cluster(house)
    page = browse(house.ana, viewport={"width": 390, "height": 844})
    dialogs = []

    def dismiss(dialog):
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    found = {}
    for address in [hostile.address_of(each) for each in (*PAGES, *MORE)]:
        answer = page.goto(address)
        expect(page.locator(ON_ITS_WAY)).to_have_count(0)
        wrong = {
            "status": answer.status * (answer.status != (404 if address == "/nothing/here" else 200)),
            "hurt": page.evaluate(HURT),
            "wide": page.evaluate(WIDE)
            if page.evaluate("document.documentElement.scrollWidth") > 390
            else [],
            "unbound": page.evaluate(UNBOUND, [hostile.END]),
            "cut": page.evaluate(CUT, [hostile.BEGIN, hostile.END]),
            "errors": [*page.errors],
        }
        page.errors.clear()
        if any(wrong.values()):
            found[address] = {what: each for what, each in wrong.items() if each}
    assert found == {}, "\n".join(f"{address}: {wrong}" for address, wrong in found.items())
    assert dialogs == []
