"""Machines in a real browser: labels with their preview, drains, the map and a new machine, also without JavaScript."""

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from machines.models import JoinToken, Machine, MachineLabel
from machines.services import machine_join
from runs.models import Run
from runs.scheduling.passes import cluster_pass
from tests import factories as make
from tests.pages import scenes
from tests.pages.test_browser_looks import violations

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

M = "/o/acme/clusters/main/machines"
FABRICS = "/o/acme/clusters/main/fabrics"


@pytest.fixture
def torn_racks(house):
    """tune-9 wants two machines in one rack; no rack is known of gpu-05."""
    make.machine_make(house, "gpu-04", rack="r2")
    make.machine_make(house, "gpu-05", rack=None)
    document = make.document_make("tune-9")
    document["spec"]["task_template"]["requested_resources"]["topology"] = {"keep_within": "rack"}
    make.run_pending(house, "tune-9", document=document)
    cluster_pass(house.cluster.id)
    assert Run.objects.get().state == "Pending"
    return house


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_rack_is_set_after_its_preview_and_the_run_starts(torn_racks, browse, theme):
    page = browse(torn_racks.ana, theme=theme)
    page.goto(f"{M}/gpu-05")
    line = page.locator("#place-rack")
    line.locator("a").click()
    line.locator("input[name=value]").press_sequentially("r2")
    preview = page.locator("#preview-rack")
    expect(preview).to_contain_text("tune-9: gpu-04 and gpu-05, one rack on one InfiniBand fabric")
    expect(page.locator("#say")).to_have_text("Would start 1 waiting run.")
    assert violations(page) == []
    assert not MachineLabel.objects.filter(found=False).exists()
    line.locator("input[name=value]").press("Enter")
    expect(line.locator(".value")).to_have_text("r2")
    expect(line.locator(".how")).to_contain_text("set by ana")
    expect(line.locator("a")).to_be_focused()
    cluster_pass(torn_racks.cluster.id)
    assert Run.objects.get().state == "Starting"
    assert page.errors == []


def test_a_rack_is_set_after_its_preview_without_javascript(torn_racks, browse):
    page = browse(torn_racks.ana, java_script_enabled=False)
    page.goto(f"{M}/gpu-05")
    page.locator("#place-rack a").click()
    page.fill("#place-rack input[name=value]", "r2")
    page.click("text=Save rack")
    expect(page.locator("#preview-rack")).to_contain_text("tune-9: gpu-04 and gpu-05")
    page.click("text=Save rack anyway")
    expect(page.locator(".notice")).to_have_text("Rack of gpu-05 is r2.")


def test_enter_before_the_preview_shows_it_first(torn_racks, browse):
    page = browse(torn_racks.ana)
    page.goto(f"{M}/gpu-05?edit=rack")
    field = page.locator("#place-rack input[name=value]")
    field.fill("r2")
    field.press("Enter")
    expect(page.locator("#place-rack button.primary")).to_have_text("Save rack anyway")
    expect(page.locator("#place-rack input[name=value]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#place-rack .value")).to_have_text("r2")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_drain_is_asked_in_a_dialog(house, browse, theme):
    scenes.busy_cluster(house)
    page = browse(house.ana, theme=theme)
    page.goto(f"{M}/gpu-02")
    page.click("text=Drain…")
    dialog = page.locator("dialog[open]:has(form)")
    expect(dialog).to_contain_text("llm-7, 8 GPUs here, also on 1 other machine")
    expect(dialog.locator("#within")).to_be_focused()
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(page.locator("a:has-text('Drain…')")).to_be_focused()
    page.keyboard.press("Enter")
    dialog.locator("#within").select_option(label="15 minutes")
    dialog.locator("#reason").fill("new cable")
    dialog.locator("button:has-text('Drain')").click()
    expect(page.locator(".notice")).to_contain_text("gpu-02 drains: it takes no new work")
    expect(page.locator("#machine-state .chip").first).to_have_text("Draining")
    machine = Machine.objects.get(name="gpu-02")
    assert machine.draining_at is not None
    assert machine.drain_until == machine.draining_at + timedelta(minutes=15)
    assert page.errors == []


def test_a_move_tells_in_its_dialog_what_it_does(house, browse):
    make.machine_make(house, "gpu-01")
    house.cluster.pools.create(slug="spare", name="Spare")
    make.run_pending(house, "tune-9", document=make.document_make("tune-9", gpus=8, machines=1))
    page = browse(house.ana)
    page.goto("/o/acme/clusters/main/pools/h100")
    page.click("text=Move…")
    dialog = page.locator("dialog[open]:has(form)")
    expect(dialog.locator("#pool")).to_be_focused()
    dialog.locator("#pool").select_option("spare")
    expect(dialog.locator("#move-preview")).to_contain_text("tune-9 could no longer start.")
    expect(page.locator("#say")).to_have_text("Takes the room of 1 waiting run.")
    assert violations(page) == []
    dialog.locator("button:has-text('Move')").click()
    expect(page.locator(".notice")).to_have_text("gpu-01 is in pool spare.")
    assert page.errors == []


def test_a_drain_is_asked_on_a_page_without_javascript(house, browse):
    make.machine_make(house, "gpu-02")
    page = browse(house.ana, java_script_enabled=False)
    page.goto(f"{M}/gpu-02")
    page.click("text=Drain…")
    page.select_option("#within", label="no time")
    page.click("button:has-text('Drain')")
    expect(page.locator(".notice")).to_contain_text("what runs there goes back to the queue")


def test_a_machine_is_added_while_the_page_waits(house, browse):
    page = browse(house.ana)
    page.goto(f"{M}/add")
    page.click("text=Show the command")
    command = page.locator("pre[aria-label='Command to run']").inner_text()
    expect(page.locator("#waiting")).to_contain_text("Waiting for the machine…")
    assert violations(page) == []
    secret = command.split("--token ")[1].split()[0]
    machine = machine_join(token=secret, name="gpu-17", runtime="docker", agent_version="0.1.0").machine
    expect(page.locator("#waiting")).to_contain_text("gpu-17 has joined.")
    Machine.objects.filter(id=machine.id).update(last_seen_at=timezone.now())
    expect(page.locator("#waiting .notice")).to_contain_text("gpu-17 is here: no GPUs.")
    page.click("text=Open gpu-17")
    page.wait_for_url(f"**{M}/gpu-17")
    page.goto(f"{M}/add")
    assert secret not in page.content()
    assert JoinToken.objects.count() == 1
    assert page.errors == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_map_is_one_stop_for_the_keyboard(house, browse, theme):
    scenes.busy_cluster(house)
    page = browse(house.ana, theme=theme)
    page.goto(M)
    page.click("nav.tabs >> text=Map")
    assert violations(page) == []
    tiles = page.locator("a.tile")
    assert tiles.evaluate_all("tiles => tiles.filter(tile => tile.tabIndex === 0).length") == 1
    tiles.first.focus()
    panel = page.locator("#map-panel")
    expect(panel.locator("h2")).to_have_text("gpu-01")
    for key, name in (
        ("ArrowRight", "gpu-02"),
        ("PageDown", "gpu-03"),
        ("End", "gpu-04"),
        ("Home", "gpu-03"),
        ("PageUp", "gpu-01"),
    ):
        page.keyboard.press(key)
        expect(panel.locator("h2")).to_have_text(name)
    page.keyboard.press("End")
    expect(panel).to_contain_text("held by llm-7-0")
    assert violations(page) == []
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{M}/gpu-02")
    assert page.errors == []


def test_picking_a_machine_rings_the_others_of_its_run(house, browse):
    scenes.busy_cluster(house)
    page = browse(house.bea)
    page.goto(f"{M}/map")
    ringed = page.locator("a.tile.beside")
    tile = page.locator("a.tile[aria-label^=gpu-02]")

    tile.focus()
    expect(page.locator("#say")).to_have_text("llm-7 runs here and on gpu-03.")
    expect(ringed).to_have_count(1)
    expect(ringed).to_have_attribute("aria-label", "gpu-03, ready, 0 of 8 GPUs free")
    ring = "tile => getComputedStyle(tile).getPropertyValue('--ring')"
    assert ringed.evaluate(ring) == ringed.evaluate(
        "tile => getComputedStyle(tile).getPropertyValue('--text')"
    )
    page.keyboard.press("PageDown")
    page.keyboard.press("End")
    expect(page.locator("#map-panel")).to_contain_text("tune-9 runs here alone.")
    expect(ringed).to_have_count(0)
    page.locator("a.tile[aria-label^=gpu-03]").hover()
    expect(ringed).to_have_attribute("aria-label", "gpu-02, ready, 0 of 8 GPUs free")
    Machine.objects.filter(name="gpu-02").update(cordoned_at=timezone.now())
    page.evaluate("htmx.trigger(document.body, 'map-changed')")
    expect(ringed).to_have_attribute("aria-label", "gpu-02, cordoned, 0 of 8 GPUs free")
    assert page.errors == []


def test_the_map_for_a_run_tells_by_keyboard_which_machines_fit(house, browse):
    scenes.busy_cluster(house)
    page = browse(house.bea)
    page.goto("/o/acme/w/vision/jobs/main/ddp-resnet50/explanation")
    page.click("text=Show on the map")
    tiles = page.locator("a.tile")
    expect(tiles.first.locator("use").nth(1)).to_have_attribute("href", "#mark-fits")
    tiles.first.focus()
    panel = page.locator("#map-panel")
    expect(panel).to_contain_text("Fits ddp-resnet50:")
    page.keyboard.press("ArrowRight")
    expect(panel).to_contain_text("Not for ddp-resnet50: 0 of 8 GPUs free, 8 needed;")
    Machine.objects.filter(name="gpu-01").update(cordoned_at=timezone.now())
    cluster_pass(house.cluster.id)
    page.evaluate("htmx.trigger(document.body, 'map-changed')")
    expect(tiles.first.locator("use").nth(1)).to_have_attribute("href", "#mark-none")
    expect(page.locator("#count-fits")).to_have_text("0")
    assert page.errors == []


def test_the_health_of_a_gpu_is_set_and_taken_back(house, browse):
    make.machine_make(house, "gpu-01")
    page = browse(house.ana)
    page.goto(f"{M}/gpu-01")
    page.click("details.menu >> text=More")
    page.click("text=Set health…")
    dialog = page.locator("dialog[open]:has(form)")
    expect(dialog.locator("#subject")).to_be_focused()
    dialog.locator("#subject").select_option(label="GPU 3 (healthy)")
    dialog.locator("#said-health").select_option("faulty")
    dialog.locator("#reason").fill("fails every night")
    dialog.locator("button:has-text('Set health')").click()
    expect(page.locator("#machine-gpus")).to_contain_text("faulty: set by ana: fails every night")
    page.click("text=Use what its agent says")
    expect(page.locator(".notice")).to_have_text("What the agent of gpu-01 says counts again.")
    expect(page.locator("#machine-gpus")).to_contain_text("8 of 8 free")
    assert page.errors == []


def test_a_fabric_is_marked_as_storage_in_a_dialog(house, browse):
    make.machine_make(house, "gpu-01")
    page = browse(house.ana)
    page.goto(FABRICS)
    page.click("text=Mark as storage…")
    dialog = page.locator("dialog[open]:has(form)")
    expect(dialog).to_contain_text("No waiting or running run is affected.")
    dialog.locator("button:has-text('Mark as storage')").click()
    expect(page.locator(".notice")).to_contain_text("ib-a is kept for storage")
    expect(page.locator(".place")).to_contain_text("out of placement")
    assert page.errors == []


def test_the_map_follows_what_changes_without_moving(house, browse):
    scenes.busy_cluster(house)
    page = browse(house.ana)
    page.goto(f"{M}/map")
    page.locator("a.tile").nth(1).focus()
    Machine.objects.filter(name="gpu-02").update(cordoned_at=timezone.now())
    page.evaluate("htmx.trigger(document.body, 'map-changed')")
    tile = page.locator("a.tile").nth(1)
    expect(tile).to_have_attribute("aria-label", "gpu-02, cordoned, 0 of 8 GPUs free")
    expect(tile).to_be_focused()
    assert page.errors == []


@pytest.mark.parametrize("width", [320, 390, 1440])
def test_nothing_scrolls_sideways(house, browse, width):
    scenes.busy_cluster(house)
    checks = [{"what": "memlock", "verdict": "wrong", "found": "64 KiB", "fix": "ulimit -l unlimited"}]
    Machine.objects.filter(name="gpu-04").update(
        checks=checks, health="suspect", evidence="fans at full speed"
    )
    page = browse(house.ana, viewport={"width": width, "height": 800})
    for address in (
        M,
        f"{M}?free=x",
        f"{M}/map",
        f"{M}/map?rack=r2",
        f"{M}/map?for=vision/llm-7",
        FABRICS,
        f"{M}/gpu-04",
        f"{M}/gpu-04/drain",
    ):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        assert violations(page) == [], address
