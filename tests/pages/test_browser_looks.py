"""Every page in a real browser: no accessibility violation in light or dark, no sideways scrolling on a phone."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from runs.models import Run
from tenancy.services import token_create
from tests.pages import scenes

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

W = "/o/acme/w/vision"
M = "/o/acme/clusters/main/machines"
PAGES = [
    f"{W}/jobs",
    f"{W}/jobs?text=nothing",
    f"{W}/jobs/stop",
    f"{W}/jobs/new",
    f"{W}/jobs/new?as=json&start=resnet50",
    f"{W}/jobs/main/ddp-resnet50/edit",
    f"{W}/jobs/main/ddp-resnet50",
    f"{W}/jobs/main/ddp-resnet50/explanation",
    f"{W}/jobs/main/llm-7",
    f"{W}/jobs/main/llm-7/log",
    f"{W}/jobs/main/llm-7/log?worker=llm-7-0",
    f"{W}/jobs/main/llm-7/stop",
    f"{W}/jobs/main/llm-7/delete",
    f"{W}/jobs/main/eval-3",
    f"{W}/workers/ddp-resnet50-0",
    f"{W}/workers/llm-7-0",
    M,
    f"{W}/settings",
    f"{W}/settings/secrets/hf",
    f"{W}/settings/credentials/ngc",
    f"{W}/settings/members/bea",
    "/o/acme/clusters/main/mesh",
    "/o/acme/clusters/main/pools",
    "/o/acme/clusters/main/pools/h100",
    f"{M}/gpu-04/move",
    "/o/acme/clusters/main/drives",
    "/o/acme/clusters/main/drives/imagenet",
    f"{M}/add",
    f"{M}/gpu-04",
    f"{M}/gpu-04?edit=rack",
    f"{M}/gpu-04/cordon",
    f"{M}/gpu-04/health",
    f"{M}/map?for=vision/ddp-resnet50",
    "/o/acme/clusters/main/fabrics",
    "/o/acme/clusters/main/fabrics/ib-a/use",
    "/accounts/password/change/",
    "/accounts/logout/",
    "/nothing/here",
]
STANDARD = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


ON_ITS_WAY = "[aria-busy=true], .htmx-request"


def violations(page):
    """What axe finds once nothing is on its way: a part that is swapped in meanwhile moves what axe has measured."""
    page.wait_for_load_state()
    expect(page.locator(ON_ITS_WAY)).to_have_count(0)
    found = Axe().run(page, options=STANDARD).response["violations"]
    return [(each["id"], [node["html"][:160] for node in each["nodes"]]) for each in found]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_accessible(house, browse, theme):
    scenes.metrics_draw(scenes.busy_cluster(house)["llm-7"])
    page = browse(house.ana, theme=theme)
    for address in PAGES:
        page.goto(address)
        assert violations(page) == [], address
        assert page.errors == [], address


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_sign_in_errors_and_menus_are_accessible(house, browse, theme):
    page = browse(theme=theme)
    page.goto("/accounts/login/")
    page.fill("#id_login", "ana")
    page.fill("#id_password", "wrong")
    page.click("button:has-text('Sign in')")
    page.wait_for_selector("#form-errors")
    assert violations(page) == []
    page = browse(house.ana, theme=theme)
    page.goto(f"{W}/jobs/new?as=json")
    page.fill("#document", '{"metadata": {"name": "A"}}')
    page.click("text=Start run")
    page.wait_for_selector("#errors")
    page.click("summary:has-text('ana')")
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    assert violations(page) == []


def test_all_states_of_a_run_are_as_wide_as_the_longest(house, browse):
    scenes.busy_cluster(house)
    Run.objects.filter(name="eval-3").update(state="Succeeded")
    page = browse(house.ana)
    page.goto(f"{W}/jobs")
    chips = page.locator(".listing .chip").evaluate_all(
        "chips => chips.map(chip => [chip.innerText.trim(), chip.offsetWidth])"
    )
    assert {state for state, _ in chips} == {"Pending", "Starting", "Running", "Succeeded"}
    assert len({width for _, width in chips}) == 1, chips


@pytest.mark.parametrize("width", [320, 390, 1440])
def test_nothing_scrolls_sideways(house, browse, width):
    scenes.metrics_draw(scenes.busy_cluster(house)["llm-7"])
    token_create(
        user=house.ana, organization=house.organization, workspace=house.workspace, role="editor", name="ci"
    )
    page = browse(house.ana, viewport={"width": width, "height": 800})
    for address in PAGES:
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address


def test_the_theme_follows_the_system_until_one_is_chosen(house, browse):
    page = browse(house.ana, color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    page.goto(f"{W}/jobs")
    assert page.evaluate(background) == "rgb(12, 16, 21)"
    page.click("summary:has-text('ana')")
    page.click("button:has-text('Light')")
    page.wait_for_selector("html[data-theme=light]")
    assert page.evaluate(background) == "rgb(249, 250, 252)"
