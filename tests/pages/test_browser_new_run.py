"""New run as people use it: by clicking, by keyboard only, without JavaScript, on a phone; and what it never does."""

import json
import re

import pytest
from playwright.sync_api import Route, expect

from runs.models import Run
from tests import factories as make
from tests.pages.conftest import cookie, signed_in
from tests.pages.test_browser_looks import violations

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

W = "/o/acme/w/vision"
NEW = f"{W}/jobs/new"
HEADLINE = "#preview:not(.stale) .headline"


@pytest.fixture
def two(house):
    """Two machines with 8 H100s on one fabric, in one rack."""
    return [make.machine_make(house, f"gpu-0{number}") for number in (1, 2)]


def opened(page, address=NEW):
    page.goto(address)
    page.wait_for_selector("#preview .headline[data-found]")


def guide_form_fill(page):
    """What section 3 of the user guide names, by the fields' labels."""
    page.get_by_label("Name", exact=True).fill("ddp-resnet50")
    page.get_by_label("Image", exact=True).fill("nvcr.io/nvidia/pytorch:24.08-py3")
    page.get_by_label("Command", exact=True).fill("bash -c 'exec torchrun /app/train_ddp.py'")
    page.get_by_label("GPUs", exact=True).fill("16")
    page.get_by_label("Exactly so many machines").fill("2")
    page.get_by_role("checkbox", name="H100").check()
    page.get_by_label("CPU cores").fill("12")
    page.get_by_label("Memory, such as").fill("100 GiB")
    page.locator("#fold-network > summary").click()
    page.get_by_label("Network between workers").select_option("InfiniBand")
    page.get_by_label("RDMA port speed at least").fill("400")
    page.locator("#fold-placement > summary").click()
    page.get_by_label("Never leave").select_option("one fabric")
    page.get_by_label("Only healthy GPUs").check()


GUIDE = {
    "gpu_requests": {"count": 16, "models": ["H100"], "healthy_only": True},
    "machines": 2,
    "per_gpu": {"cpu_cores": 12, "memory_bytes": 100 * 2**30},
    "network": {"interconnect": "infiniband", "min_gbps": 400},
    "topology": {"keep_within": "fabric"},
}


def requested():
    return json.loads(Run.objects.get().submitted)["spec"]["task_template"]["requested_resources"]


def test_the_guides_run_is_filled_in_and_started(house, two, browse):
    page = browse(house.bea)
    opened(page)
    expect(page.locator(HEADLINE)).to_have_text("Enter image, command and GPUs to see where it would run.")
    guide_form_fill(page)
    page.locator("#fold-placement > summary").scroll_into_view_if_needed()
    expect(page.locator(HEADLINE)).to_have_text(
        "Would start now: gpu-01 and gpu-02, one rack on one InfiniBand fabric"
    )
    expect(page.locator("#preview .more")).to_contain_text("2 workers × 8 GPUs, 96 cores and 800 GiB each")
    expect(page.locator("#said-network")).to_have_text("InfiniBand, at least 400 Gb/s")
    page.get_by_label("Attach files").set_input_files(
        {"name": "train_ddp.py", "mimeType": "text/x-python", "buffer": b"print('<hi>')\n"}
    )
    expect(page.locator("#field-files .row").first.locator("textarea")).to_have_value("print('<hi>')\n")
    assert page.errors == []
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(f"**{W}/jobs/main/ddp-resnet50")
    assert requested() == GUIDE
    template = json.loads(Run.objects.get().submitted)["spec"]["task_template"]
    assert template["configs"] == [{"mounts": ["/app/train_ddp.py"], "value": "print('<hi>')\n"}]
    assert (template["command"], template["args"]) == ("bash", ["-c", "exec torchrun /app/train_ddp.py"])


def test_a_start_is_one_choice_and_waits_only_for_its_button(house, two, browse):
    page = browse(house.bea)
    page.goto(NEW)
    page.get_by_text("Start from").click()
    page.get_by_role("link", name="PyTorch DDP").click()
    expect(page.locator(HEADLINE)).to_contain_text("Would start now")
    page.get_by_label("Name", exact=True).press("Enter")
    assert not Run.objects.exists()
    page.keyboard.press("Control+Enter")
    page.wait_for_url(f"**{W}/jobs/main/ddp-resnet50")
    [config] = json.loads(Run.objects.get().submitted)["spec"]["task_template"]["configs"]
    assert config["mounts"] == ["/app/train_ddp.py"]


def test_by_keyboard_only(house, two, browse):
    page = browse(house.bea)
    opened(page)
    page.get_by_label("Name", exact=True).focus()
    for typed in ("small", "busybox", "sleep 60", "8"):
        page.keyboard.type(typed)
        page.keyboard.press("Tab")
    expect(page.locator(HEADLINE)).to_contain_text("Would start now: gpu-0")
    page.get_by_role("button", name="Start run").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{W}/jobs/main/small")
    assert requested() == {"gpu_requests": {"count": 8}}


def test_without_javascript(house, two, browse, live_server):
    page = browse(house.bea, java_script_enabled=False)
    page.goto(NEW)
    guide_form_fill(page)
    page.get_by_label("Exactly so many machines").fill("3")
    page.locator("input[name=f-machines-mode][value=exactly]").check()
    page.get_by_role("button", name="Start run").click()
    summary = page.locator("#errors")
    expect(summary).to_contain_text("The run was not started: 1 entry needs a change.")
    expect(page.locator("#f-gpus-problem")).to_have_text(
        "16 GPUs can't be split evenly over 3 machines. Use 15 or 18."
    )
    page.get_by_label("Exactly so many machines").fill("2")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#preview .headline")).to_contain_text("Would start now: gpu-01 and gpu-02")
    page.context.clear_cookies()
    page.get_by_role("button", name="Start run").click()
    expect(page.locator("h1")).to_have_text("You were signed out.")
    session = signed_in(house.bea).cookies["sessionid"].value
    page.context.add_cookies([cookie(live_server, "sessionid", session)])
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("ddp-resnet50")
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(f"**{W}/jobs/main/ddp-resnet50")
    assert requested() == GUIDE


def test_errors_stand_at_their_fields_and_lead_there(house, two, browse):
    page = browse(house.bea)
    opened(page, f"{NEW}?start=resnet50")
    page.get_by_label("GPUs", exact=True).fill("17")
    page.get_by_label("GPUs", exact=True).press("Tab")
    problem = page.locator("#f-gpus-problem")
    expect(problem).to_have_text("17 GPUs can't be split evenly over 2 machines. Use 16 or 18.")
    expect(page.locator("#f-gpus")).to_have_attribute("aria-invalid", "true")
    page.locator("#fold-failure > summary").click()
    page.get_by_label("Time limit", exact=True).fill("soon")
    page.get_by_role("button", name="Start run").click()
    summary = page.locator("#errors")
    expect(summary).to_be_focused()
    assert page.title().startswith("Error: ")
    summary.locator("a").click()
    expect(page.get_by_label("Time limit", exact=True)).to_be_focused()
    expect(page.get_by_label("Time limit", exact=True)).to_have_value("soon")
    expect(page.get_by_label("GPUs", exact=True)).to_have_value("17")
    assert violations(page) == []
    page.get_by_label("Time limit", exact=True).fill("1 h")
    page.locator("#field-files > summary").click()
    path = page.locator("#files-1-mounts")
    path.fill("train.py")
    path.press("Tab")
    expect(page.locator("#files-1-mounts-problem")).to_have_text(
        "`train.py` is relative. Write the whole path, from `/` on."
    )
    expect(path).to_have_attribute("aria-describedby", "files-1-mounts-problem")
    expect(path).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Start run").click()
    expect(summary).to_be_focused()
    summary.locator("a[data-to=files-1-mounts]").click()
    expect(path).to_be_focused()
    assert violations(page) == []
    path.fill("/app/more.py")
    page.get_by_label("GPUs", exact=True).fill("16")
    expect(page.locator(HEADLINE)).to_contain_text("Would start now")
    expect(problem).to_be_hidden()
    assert not Run.objects.exists()


def test_the_nearest_change_is_one_click(house, two, browse):
    page = browse(house.bea)
    opened(page, f"{NEW}?start=resnet50")
    page.locator("#fold-network > summary").click()
    page.get_by_label("RDMA port speed at least").fill("800")
    expect(page.locator(HEADLINE)).to_contain_text("Can never start on main: 2 machines with 8 free H100s")
    expect(page.locator(".nearest")).to_contain_text("Accept any network instead of InfiniBand only")
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("#field-interconnect.marked")).to_contain_text("Changed")
    expect(page.get_by_label("Network between workers")).to_have_value("any")
    expect(page.get_by_label("Network between workers")).to_be_focused()
    expect(page.locator(HEADLINE)).to_contain_text("Would start now")
    assert page.errors == []


def test_form_and_json_are_one_document(house, two, browse):
    page = browse(house.bea)
    document = make.document_make()
    document["spec"]["task_template"]["probes"] = {"liveness": {"tcp": {"port": 8080}, "odd": 1}}
    text = json.dumps(document, indent=3)
    page.goto(f"{NEW}?as=json")
    page.fill("#document", text)
    page.get_by_role("button", name="Form", exact=True).click()
    expect(page.locator("#also")).to_contain_text("probes.liveness")
    page.get_by_role("button", name="Edit as JSON").click()
    expect(page.locator("#document")).to_have_value(text)
    page.get_by_role("button", name="Form", exact=True).click()
    page.locator("#also button").click()
    selected = "(area) => area.value.slice(area.selectionStart, area.selectionEnd).trim()"
    expect(page.locator("#document")).to_be_focused()
    assert page.locator("#document").evaluate(selected) == '"liveness": {'
    page.fill("#document", text.replace('"metadata": {', '"metadata": {,'))
    page.get_by_role("button", name="Form", exact=True).click()
    expect(page.locator("#errors")).to_contain_text("Line 2")
    page.get_by_role("button", name="go back to the form as it was").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("ddp-resnet50")
    assert page.errors == []


def test_json_is_completed_explained_and_marked(house, two, browse):
    page = browse(house.bea)
    page.goto(f"{NEW}?as=json")
    page.wait_for_selector("#document[data-ready]")
    area, offers = page.locator("#document"), page.locator("#completions")
    area.focus()
    page.keyboard.type('{"sp')
    expect(offers.locator("[aria-selected=true]")).to_contain_text("spec")
    page.keyboard.press("Enter")
    page.keyboard.type('"on_f')
    page.keyboard.press("Tab")
    expect(offers.get_by_role("option")).to_have_count(3)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(area).to_have_value(re.compile(r'\{"spec": \{"on_failure": "RestartTask"\}'))
    expect(page.locator("#about")).to_contain_text("When a worker fails")
    assert violations(page) == []
    page.keyboard.press("Control+z")
    area.fill('{\n "metadata": {"name": "a"},\n "spec": {\n  "gpu_request": 1\n }\n}')
    expect(page.locator(".gutter b")).to_have_text(["3", "4"])
    page.mouse.move(*pointed(area, line=2, column=17))
    expect(page.locator("#about")).to_contain_text("metadata.name")
    # The list of completions was placed by a script; the form that comes instead of this one is not.
    page.get_by_role("button", name="Edit as JSON").click()
    expect(page.get_by_role("button", name="Edit as JSON")).to_be_focused()
    expect(offers).not_to_have_attribute("style", re.compile(""))
    assert page.errors == []


def pointed(area, *, line, column):
    """The place of a character on the page."""
    box = area.bounding_box()
    metrics = area.evaluate("(area) => window.astraeus.editor.metrics()")
    return (
        box["x"] + metrics["left"] + (column - 0.5) * metrics["width"],
        box["y"] + metrics["top"] + (line - 0.5) * metrics["height"],
    )


def test_no_preview_but_of_what_stands_there_is_ever_shown(house, two, browse):
    """The answer about the first name is held back until the second one is typed."""
    page = browse(house.bea)
    opened(page, f"{NEW}?start=resnet50")
    held: list[Route] = []

    def hold(route):
        if not held and "f-gpus=17" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    page.route(f"**{NEW}", hold)
    seen = "() => document.querySelector('#preview .headline').textContent"
    with page.expect_request(lambda request: "f-gpus=17" in (request.post_data or "")):
        page.get_by_label("GPUs", exact=True).fill("17")
    page.get_by_label("GPUs", exact=True).fill("8")
    expect(page.locator("#preview")).to_have_class(re.compile("stale"))
    held[0].fulfill(status=200, body="<p class=headline data-kind=wrong data-found='{}'>STALE</p>")
    expect(page.locator(HEADLINE)).to_contain_text("Would start now")
    assert "STALE" not in page.evaluate(seen)
    page.unroute(f"**{NEW}")
    page.route(f"**{NEW}", lambda route: route.fulfill(status=500, body="no"))
    page.get_by_label("GPUs", exact=True).fill("16")
    expect(page.locator(HEADLINE)).to_have_text("No preview right now. Start run works all the same.")


def test_what_is_typed_into_the_form_survives_the_end_of_the_sign_in(house, browse):
    page = browse(house.bea)
    opened(page)
    page.get_by_label("Name", exact=True).fill("half-typed")
    page.get_by_label("GPUs", exact=True).fill("many")
    page.context.clear_cookies()
    page.goto(NEW)
    page.fill("#id_login", "bea")
    page.fill("#id_password", make.PASSWORD)
    page.click("button:has-text('Sign in')")
    page.wait_for_url(f"**{NEW}")
    expect(page.locator("#restored")).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_have_value("half-typed")
    expect(page.get_by_label("GPUs", exact=True)).to_have_value("many")


def test_a_waiting_run_is_edited_in_place_and_any_run_is_cloned(house, two, browse):
    run = make.run_pending(house)
    page = browse(house.bea)
    patch = json.dumps({"spec": {"task_template": {"requested_resources": {"network": {"min_gbps": 200}}}}})
    opened(page, f"{W}/jobs/main/ddp-resnet50/edit?patch={patch}")
    expect(page.locator("#field-min_gbps")).to_contain_text("Changed")
    expect(page.locator(HEADLINE)).to_contain_text("Would start now")
    page.get_by_role("button", name="Save and requeue").click()
    page.wait_for_url(f"**{W}/jobs/main/ddp-resnet50")
    run.refresh_from_db()
    assert run.document["spec"]["task_template"]["requested_resources"]["network"]["min_gbps"] == 200
    assert run.edition == 1
    opened(page, f"{NEW}?clone=ddp-resnet50")
    expect(page.get_by_label("Name", exact=True)).to_have_value("ddp-resnet50-v2")
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(f"**{W}/jobs/main/ddp-resnet50-v2")


def test_hostile_texts_are_only_texts(house, two, browse):
    hostile = "<img src=x onerror=alert(1)>\u202e{{x}}"
    document = make.document_make(name="a")
    template = document["spec"]["task_template"]
    template["env"] = {"X": hostile, "Y": '"\n'}
    template["configs"] = [{"mounts": ["/app/x"], "value": f"</textarea>{hostile}"}]
    template["requested_resources"]["gpu_requests"]["models"] = [hostile]
    document["metadata"]["labels"] = {hostile: hostile}
    page = browse(house.bea)
    page.goto(f"{NEW}?as=json")
    page.fill("#document", json.dumps(document))
    page.get_by_role("button", name="Form", exact=True).click()
    page.wait_for_selector("#fold-environment")
    expect(page.locator(HEADLINE)).to_contain_text("need")
    page.get_by_role("button", name="Edit as JSON").click()
    expect(page.locator("#document")).to_have_value(json.dumps(document))
    assert page.locator("main img").count() == 0
    assert page.errors == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_phone_everything_is_in_reach(house, two, browse, theme):
    page = browse(house.bea, theme=theme, viewport={"width": 390, "height": 844}, has_touch=True)
    opened(page, f"{NEW}?start=resnet50")
    for fold in page.locator("details.fold > summary").all():
        fold.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(page.get_by_role("button", name="Start run")).to_be_in_viewport()
    assert violations(page) == []
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(f"**{W}/jobs/main/ddp-resnet50")


def test_nothing_shifts_and_little_is_loaded(house, two, browse):
    page = browse(house.bea)
    page.add_init_script(
        "window.shifted = 0; new PerformanceObserver((list) => list.getEntries().forEach((each) => "
        "{ if (!each.hadRecentInput) window.shifted += each.value; }))"
        ".observe({type: 'layout-shift', buffered: true});"
    )
    opened(page, f"{NEW}?start=resnet50")
    expect(page.locator(HEADLINE)).to_contain_text("Would start now")
    assert page.evaluate("window.shifted") < 0.02
