"""The style guide shows all there is: whatever is added to the shared style sheets is to be added to it."""

import re

import pytest
from django.conf import settings

from tests.pages.test_browser_looks import violations
from tests.pages.test_tokens import TONES

GUIDE = "/styleguide"
SHEETS = ("controls.css", "parts.css")


def classes_of(sheet):
    text = (settings.BASE_DIR / "static/css" / sheet).read_text(encoding="utf-8")
    selectors = re.sub(r"/\*.*?\*/|\{[^{}]*\}", " ", text, flags=re.DOTALL)
    return set(re.findall(r"\.([a-z][\w-]*)", selectors))


def used_in(page):
    return {name for group in re.findall(r'class="([^"]*)"', page) for name in group.split()}


def test_every_class_of_the_shared_sheets_is_shown(house, bea):
    page = bea.get(GUIDE).content.decode()
    for sheet in SHEETS:
        assert classes_of(sheet) - used_in(page) == set(), sheet
    assert {f"tone-{tone}" for tone in TONES} <= used_in(page)


def test_every_state_is_shown_with_its_word(house, bea):
    page = bea.get(GUIDE).content.decode()
    words = set(re.findall(r'<span class="chip tone-\w+">.*?</svg>\s*<span>([^<]+)</span>', page, re.DOTALL))
    assert words == {
        *("Pending", "Starting", "Running", "Stopping", "Succeeded", "Failed", "Stopped"),
        *("Placed", "Preparing", "Ready", "Lost"),
        *("Cordoned", "Draining", "Unreachable", "Contested", "Quarantined"),
        *("Order", "Fit", "Policy", "Never possible"),
    }


def test_icons_are_of_one_outline_each():
    drawn = {
        path.name: path.read_text(encoding="utf-8")
        for path in (settings.BASE_DIR / "templates/icons").iterdir()
    }
    assert len(set(drawn.values())) == len(drawn)
    assert all('aria-hidden="true"' in svg and "currentColor" in svg for svg in drawn.values())


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_guide_is_accessible_and_fits_a_phone(house, browse, theme):
    page = browse(house.bea, theme=theme, viewport={"width": 390, "height": 800})
    page.goto(GUIDE)
    assert violations(page) == []
    assert page.errors == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
