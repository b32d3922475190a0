"""The user guide's sections 3 to 6 by clicking only, on a cluster that has no room at first: what a stuck run waits for
is read, what would start it is pressed, and it starts. The same once by keyboard only and once on a phone.

Passes and agents' reports are the real ones, called by the test; the streams are test_browser_stream.py's.
"""

import json

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from machines.models import Machine
from runs.models import Run
from runs.scheduling.passes import cluster_pass
from tests import factories as make
from tests.pages.test_browser_looks import violations
from tests.runs.explained import holding
from tests.support.gangs import Gang
from tests.wire.conftest import REFERENCE_TEXT
from wire.agent_messages import Exit

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

W = "/o/acme/w/vision"
DDP = f"{W}/jobs/main/ddp-resnet50"
SCRIPT = "print('all_reduce')\n"
STOPPED = Exit(kind="stopped", signal=15)
STUCK = "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01)."
LOG = (
    "worker 0 of 2 on gpu-01, leader 10.20.0.11:29500, 8 GPUs\n"
    "gpu-01:212:390 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]\n"
    "all_reduce 1 GiB over 16 GPUs: 5.6 ms, bus bandwidth 360 GB/s\n"
)


@pytest.fixture
def eval_3(house):
    """Holds half of gpu-02, while gpu-03 is cordoned: of the guide's two machines only gpu-01 is there."""
    machines = [make.machine_make(house, f"gpu-0{number}") for number in (1, 2, 3)]
    cordon = {"cordoned_at": timezone.now(), "cordoned_by": "ops", "cordon_reason": "changing a cable"}
    Machine.objects.filter(name="gpu-03").update(**cordon)
    return Gang(holding(house, "eval-3", machines[1], gpus=4))


@pytest.fixture
def stuck(house, eval_3):
    """The guide's run, which waits."""
    run = make.run_pending(house, document=guide_document())
    cluster_pass(house.cluster.id)
    return Gang(run)


def guide_document():
    """The guide's run.full.json."""
    document = json.loads(REFERENCE_TEXT)
    document["spec"]["task_template"]["configs"] = [{"mounts": ["/app/train_ddp.py"], "value": SCRIPT}]
    return document


def passed(house, page):
    """One pass of the scheduler, and what the open page's stream says of it."""
    cluster_pass(house.cluster.id)
    changed(page)


def changed(page):
    page.wait_for_load_state()  # before, nothing listens
    page.evaluate("document.body.dispatchEvent(new Event('run-changed'))")


def stands(page, state, reason):
    expect(page.locator("#run-state .chip")).to_have_text(state)
    expect(page.locator("#run-state")).to_contain_text(reason)


def back_to_the_run(page):
    page.locator(".crumbs").get_by_role("link", name="ddp-resnet50").click()
    page.wait_for_url(f"**{DDP}")


def offer(page, button):
    return page.locator(".offers").get_by_role("link", name=button)


def test_sections_3_to_6_by_clicking_only(house, eval_3, browse):
    page = browse(house.bea)
    page.goto("/")
    submit(page)
    passed(house, page)
    stands(page, "Pending", STUCK)
    reads_why(page)
    stops_what_is_in_the_way(house, page, eval_3)
    gang = Gang(Run.objects.get(name="ddp-resnet50"))
    watches_it_start(page, gang)
    reads_the_log(page, gang)
    stops(page, gang)
    deletes(page)
    assert page.errors == []


def submit(page):
    """Section 3: the document is pasted; the form shows the same settings."""
    page.get_by_role("link", name="New run").click()
    page.get_by_role("button", name="Edit as JSON").click()
    page.locator("#document").fill(json.dumps(guide_document(), indent=2))
    page.get_by_role("button", name="Form", exact=True).click()
    expect(page.get_by_label("Wait for a better network")).to_have_value("10 min")
    expect(page.locator("#also")).to_have_count(0)
    expect(page.locator("#preview:not(.stale) .headline")).to_contain_text(STUCK)
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(f"**{DDP}")
    stands(page, "Pending", "Queued; the next pass is due within seconds")
    assert json.loads(Run.objects.get(name="ddp-resnet50").submitted) == guide_document()


def reads_why(page):
    """Section 4: the run's page and each worker's say what is missing, machine by machine."""
    page.get_by_role("link", name="ddp-resnet50-1").click()
    expect(page.get_by_role("heading", name="Why it is not running yet")).to_be_visible()
    for cause in (
        "8 of 8 GPUs free",
        "4 of 8 GPUs free, 8 needed; 4 held by eval-3",
        "Cordoned by ops",
    ):
        expect(page.locator("#worker-why")).to_contain_text(cause)
    back_to_the_run(page)
    page.get_by_role("link", name="Why, machine by machine").click()
    expect(page.locator("#explanation-headline")).to_contain_text(STUCK)
    expect(page.locator(".domains")).to_contain_text("1 of 2 found")
    back_to_the_run(page)


def stops_what_is_in_the_way(house, page, eval_3):
    """A what-if asks first, says what is lost, and does it; the next pass starts the run."""
    offer(page, "Stop eval-3…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("eval-3 stops; it is of bea.")
    expect(dialog.get_by_role("link", name="Cancel")).to_be_focused()
    dialog.get_by_role("button", name="Stop eval-3").click()
    expect(page.locator(".notice")).to_contain_text("The next pass is to start ddp-resnet50.")
    assert eval_3.advance() == ("Stopping", "0 of 1 workers ended")
    eval_3.all_end(STOPPED)
    assert eval_3.advance() == ("Stopped", "Stopped by bea")
    passed(house, page)


def watches_it_start(page, gang):
    """Section 4: Starting until both containers are ready, then Running; which network it got, in words."""
    stands(page, "Starting", "Starting together: 0 of 2 ready")
    expect(page.locator("#run-why")).not_to_contain_text("Why it is waiting")
    gang.say(0, "ready")
    gang.advance()
    changed(page)
    stands(page, "Starting", "Starting together: 1 of 2 ready")
    gang.start()
    changed(page)
    stands(page, "Running", "2 of 2 workers running")
    expect(page.locator("#run-network")).to_contain_text("one InfiniBand fabric")
    expect(page.locator(".workers .c-machine a")).to_have_text(["gpu-01", "gpu-02"])


def reads_the_log(page, gang):
    """Section 5: worker 0's log has the results."""
    make.log_write(gang.members[0], LOG.encode())
    page.get_by_role("link", name="ddp-resnet50-0").click()
    expect(page.locator("#worker-state .chip")).to_have_text("Running")
    expect(page.locator(".log .line")).to_have_count(3)
    expect(page.locator(".log .line").last).to_contain_text("bus bandwidth 360 GB/s")
    page.get_by_role("heading", name="Variables").click()
    expect(page.locator("table.variables tr", has_text="WORLD_SIZE").first).to_be_visible()
    back_to_the_run(page)


def stops(page, gang):
    page.get_by_role("link", name="Stop", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.locator(".notice")).to_contain_text("ddp-resnet50")
    gang.advance()
    changed(page)
    stands(page, "Stopping", "0 of 2 workers ended")
    gang.all_end(STOPPED)
    gang.advance()
    changed(page)
    stands(page, "Stopped", "Stopped by bea")
    assert gang.held() == 0


def deletes(page):
    """Section 6: confirmed with the run's name."""
    page.get_by_role("link", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_label("Type the run's name").fill("ddp-resnet50")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".notice")).to_have_text("ddp-resnet50 deleted.")
    expect(page.locator("a.row-link")).to_have_text(["eval-3"])


def test_a_stuck_run_is_edited_and_starts_by_keyboard_only(house, stuck, browse):
    page = browse(house.bea)
    page.goto(f"{W}/jobs")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{DDP}")
    page.keyboard.press("w")
    expect(page.locator("#offers")).to_be_focused()
    edit = offer(page, "Edit and requeue…").first
    tab_to(page, edit)
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("link", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(edit).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("link", name="Cancel")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(dialog.get_by_role("button", name="Save and requeue")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#say")).to_contain_text("The next pass is to start ddp-resnet50.")
    assert stuck.fresh.edition == 1
    passed(house, page)
    stands(page, "Starting", "Starting")
    expect(page.locator("#say")).to_contain_text("ddp-resnet50 is Starting")
    assert page.errors == []


def tab_to(page, target):
    """Presses Tab until `target` has the focus; it must come within the next ten stops."""
    for _ in range(10):
        page.keyboard.press("Tab")
        if target.evaluate("(each) => each === document.activeElement"):
            return
    expect(target).to_be_focused()


def test_a_stuck_run_gets_a_machine_back_on_a_phone(house, stuck, browse):
    page = browse(house.ana, viewport={"width": 390, "height": 844}, has_touch=True)
    page.goto(f"{W}/jobs")
    page.get_by_role("link", name="ddp-resnet50").tap()
    page.wait_for_url(f"**{DDP}")
    stands(page, "Pending", STUCK)
    expect(page.locator("#run-state")).to_be_in_viewport(ratio=1)
    fits(page)
    uncordon = offer(page, "Uncordon gpu-03…")
    uncordon.tap()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("New work may land on gpu-03 at once.")
    yes = dialog.get_by_role("button", name="Uncordon gpu-03")
    expect(yes).to_be_in_viewport(ratio=1)
    fits(page)
    yes.tap()
    expect(page.locator(".notice")).to_contain_text("Done: Uncordon gpu-03.")
    passed(house, page)
    stands(page, "Starting", "Starting together: 0 of 2 ready")
    expect(page.locator(".workers .c-machine a")).to_have_text(["gpu-01", "gpu-03"])
    fits(page)
    assert page.errors == []


def fits(page):
    """Nothing is cut off at the side, and axe has nothing to say."""
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert violations(page) == []
