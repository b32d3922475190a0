"""What people do on the pages, in a real browser: by mouse, by keyboard only, and without JavaScript."""

import json

import pytest
from playwright.sync_api import expect

from machines.models import MachineLabel
from runs.models import Run
from tests import factories as make
from tests.pages import scenes
from tests.pages.conftest import cookie, signed_in

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

W = "/o/acme/w/vision"
NEW = f"{W}/jobs/new"
AS_JSON = f"{NEW}?as=json"
DDP = f"{W}/jobs/main/ddp-resnet50"
M = "/o/acme/clusters/main/machines"


def sign_in(page, name):
    page.fill("#id_login", name)
    page.fill("#id_password", make.PASSWORD)
    page.click("button:has-text('Sign in')")


def test_sign_in_and_out(house, browse):
    page = browse()
    page.goto("/")
    sign_in(page, "bea")
    expect(page.locator("h1")).to_have_text("Runs")
    page.click("summary:has-text('bea')")
    page.click("text=Sign out")
    page.wait_for_url("**/accounts/login/**")
    assert page.errors == []


def test_errors_are_found_corrected_and_the_run_starts(house, browse):
    page = browse(house.bea)
    page.goto(AS_JSON)
    document = make.document_make()
    document["spec"]["task_template"]["requested_resources"]["machines"] = 3
    wrong = json.dumps(document, indent=2)
    page.fill("#document", wrong)
    page.click("text=Start run")
    summary = page.locator("#errors")
    expect(summary).to_be_focused()
    expect(summary).to_contain_text("16 GPUs can't be split evenly over 3 machines.")
    assert page.title().startswith("Error: ")
    assert page.input_value("#document") == wrong
    expect(page.locator(".gutter b")).to_be_visible()  # only then the editor listens
    summary.locator("a").click()
    selected = "(area) => area.value.slice(area.selectionStart, area.selectionEnd).trim()"
    assert page.locator("#document").evaluate(selected) == '"count": 16,'
    expect(page.locator(".gutter b")).to_have_count(1)
    page.fill("#document", wrong.replace('"machines": 3', '"machines": 2'))
    page.locator("#document").press("Control+Enter")
    page.wait_for_url(f"**{DDP}")
    expect(page.locator("#run-state .chip")).to_have_text("Pending")
    expect(page.locator("#say")).to_have_text("ddp-resnet50 is in the queue.")
    page.goto(AS_JSON)
    expect(page.locator("#document")).to_have_value("")
    assert page.errors == []


def test_a_file_goes_into_the_editor(house, browse, tmp_path):
    file = tmp_path / "run.json"
    file.write_text('{"metadata": {"name": "from-file"}}')
    page = browse(house.bea)
    page.goto(AS_JSON)
    page.set_input_files("#file", file)
    expect(page.locator("#document")).to_have_value('{"metadata": {"name": "from-file"}}')


def test_what_was_typed_survives_the_end_of_the_sign_in(house, browse):
    page = browse(house.bea)
    page.goto(AS_JSON)
    page.fill("#document", '{"half": "typed"}')
    page.context.clear_cookies()
    page.goto(AS_JSON)
    sign_in(page, "bea")
    page.wait_for_url(f"**{NEW}*")
    expect(page.locator("#document")).to_have_value('{"half": "typed"}')
    expect(page.locator("#restored")).to_be_visible()
    page.click("#discard")
    page.reload()
    expect(page.locator("#document")).to_have_value("")


def test_sending_after_the_end_of_the_sign_in_loses_nothing(house, browse, live_server):
    page = browse(house.bea, java_script_enabled=False)
    page.goto(AS_JSON)
    page.fill("#document", '{"whole": "typed"}')
    page.context.clear_cookies()
    page.click("text=Start run")
    expect(page.locator("#document")).to_have_value('{"whole": "typed"}')
    session = signed_in(house.bea).cookies["sessionid"].value
    page.context.add_cookies([cookie(live_server, "sessionid", session)])
    page.click("button:has-text('Go on')")
    expect(page.locator("h1")).to_contain_text("New run")
    expect(page.locator("#document")).to_have_value('{"whole": "typed"}')


@pytest.mark.parametrize("javascript", [True, False])
def test_delete_by_name(house, browse, javascript):
    run = make.run_pending(house)
    make.run_fail(make.run_place(house, run, [make.machine_make(house, f"gpu-0{n}") for n in (1, 2)]))
    page = browse(house.bea, java_script_enabled=javascript)
    page.goto(DDP)
    page.click("text=Delete")
    page.fill("#name", "ddp")
    page.click("button:has-text('Delete')")
    expect(page.locator("#name-error")).to_have_text("That is not the name. Type ddp-resnet50.")
    page.fill("#name", "ddp-resnet50")
    page.click("button:has-text('Delete')")
    expect(page.locator(".notice")).to_have_text("ddp-resnet50 deleted.")
    assert not Run.objects.exists()


def test_stop_keeps_the_safe_button_focused(house, browse):
    make.run_pending(house)
    page = browse(house.bea)
    page.goto(f"{DDP}/stop")
    expect(page.locator("a:has-text('Keep running')")).to_be_focused()
    page.keyboard.press("Escape")
    page.wait_for_url(f"**{DDP}")
    assert Run.objects.get().wanted == "run"


def test_a_rack_is_edited_in_its_line_by_keyboard_only(house, browse):
    make.machine_make(house, "gpu-04", rack="r2")
    page = browse(house.ana)
    page.goto(f"{M}/gpu-04")
    line = page.locator("#place-rack")
    line.locator("a").focus()
    page.keyboard.press("Enter")
    field = line.locator("input[name=value]")
    expect(field).to_be_focused()
    page.keyboard.press("Escape")
    expect(line.locator("a")).to_be_focused()
    page.keyboard.press("Enter")
    expect(field).to_be_focused()
    field.fill("rack 7")
    page.keyboard.press("Enter")
    expect(line.locator(".error")).to_contain_text("`rack 7` is not a label's value.")
    expect(field).to_have_value("rack 7")
    field.fill("r7")
    page.keyboard.press("Enter")
    expect(line.locator(".value")).to_have_text("r7")
    expect(line.locator("a")).to_be_focused()
    expect(page.locator("#say")).to_have_text("Rack of gpu-04 is r7.")
    assert page.url.endswith("/gpu-04")
    assert MachineLabel.objects.get(found=False).value == "r7"
    assert page.errors == []


def test_a_rack_is_edited_without_javascript(house, browse):
    make.machine_make(house, "gpu-04", rack="r2")
    page = browse(house.ana, java_script_enabled=False)
    page.goto(f"{M}/gpu-04")
    page.locator("#place-rack a").click()
    page.fill("#place-rack input[name=value]", "r7")
    page.click("text=Save rack")
    expect(page.locator(".notice")).to_have_text("Rack of gpu-04 is r7.")


def test_the_keyboard_leads_everywhere(house, browse):
    scenes.busy_cluster(house)
    page = browse(house.ana)
    page.goto(f"{W}/jobs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("a.row-link").nth(1)).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{DDP}")
    page.keyboard.press("g")
    page.keyboard.press("m")
    page.wait_for_url(f"**{M}")
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("gpu-04")
    page.keyboard.press("Enter")
    page.wait_for_url("**?text=gpu-04")
    expect(page.locator("a.row-link")).to_have_count(1)
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url(f"**{W}/jobs")
    page.keyboard.press("n")
    page.wait_for_url(f"**{NEW}")


def test_single_keys_can_be_switched_off(house, browse):
    page = browse(house.ana)
    page.goto(f"{W}/jobs")
    page.keyboard.press("?")
    page.uncheck("#keys-on")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_hidden()
    assert page.url.endswith("/jobs")


def test_a_name_is_copied_with_one_press(house, browse):
    make.run_pending(house)
    page = browse(house.bea, permissions=["clipboard-read", "clipboard-write"])
    page.goto(DDP)
    page.locator("h1 .copy").click()
    expect(page.locator("h1 .copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "ddp-resnet50"
