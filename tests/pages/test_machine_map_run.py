"""The map for one run: which machines fit it, which it was given, and why not the others."""

import html
import re

import pytest

from machines.models import Machine
from runs.models import Run
from runs.scheduling.passes import cluster_pass
from tenancy.models import Membership, Workspace
from tests import factories as make
from tests.pages.conftest import signed_in

MACHINES = "/o/acme/clusters/main/machines"
MAP = f"{MACHINES}/map"
WAITING = f"{MAP}?for=vision/ddp-resnet50"
RUNNING = f"{MAP}?for=vision/llm-7"


def text(answer) -> str:
    return " ".join(html.unescape(answer.content.decode()).split())


def tiles(answer) -> dict[str, tuple[str, str]]:
    """Machine → its mark, and what a screen reader hears."""
    found = {}
    for tile in re.findall(r'<a id="m-.*?</a>', answer.content.decode(), re.DOTALL):
        label = html.unescape(re.search(r'aria-label="([^"]*)"', tile)[1])
        found[label.partition(",")[0]] = (re.search(r'href="#mark-(\w+)"', tile)[1], label)
    return found


def test_a_waiting_run_sees_which_machines_fit_it_and_why_not_the_others(busy, vic):
    page = vic.get(WAITING)

    seen = tiles(page)
    assert {name: mark for name, (mark, _) in seen.items()} == {
        "gpu-01": "fits",
        "gpu-02": "none",
        "gpu-03": "none",
        "gpu-04": "none",
        "gpu-05": "none",
        "gpu-06": "none",
    }
    assert seen["gpu-01"][1].startswith("gpu-01, ready, 8 of 8 GPUs free, fits the run: ")
    assert "does not fit the run: 0 of 8 GPUs free, 8 needed" in seen["gpu-02"][1]
    assert "held by llm-7" in seen["gpu-02"][1]
    told = text(page)
    assert (
        "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01), ib-b has 0."
        in told
    )
    assert 'Fits it <b id="count-fits">1</b>' in told
    assert 'Chosen for it <b id="count-chosen">0</b>' in told
    assert "8 of 16 free · 1 fits" in told
    assert 'aria-label="Rack r1, 8 of 16 GPUs free, 1 fit the run"' in told
    assert 'data-for="vision/ddp-resnet50"' in told


def test_the_panel_tells_why(busy, vic):
    def panel(machine: str) -> str:
        address = f"{MACHINES}/{machine}?panel=1&for=vision/ddp-resnet50"
        return text(vic.get(address, headers={"HX-Request": "true"}))

    assert "<b>Fits <bdi>ddp-resnet50</bdi>:</b>" in panel("gpu-01")
    told = panel("gpu-02")
    assert "<b>Not for <bdi>ddp-resnet50</bdi>:</b> 0 of 8 GPUs free, 8 needed;" in told
    assert "held by llm-7" in told
    assert "ddp-resnet50" not in text(vic.get(f"{MACHINES}/gpu-01?panel=1", headers={"HX-Request": "true"}))


def test_a_run_that_runs_is_shown_where_it_is(busy, vic):
    seen = tiles(vic.get(RUNNING))

    assert {name for name, (mark, _) in seen.items() if mark == "chosen"} == {"gpu-02", "gpu-03"}
    assert seen["gpu-02"][1].endswith("chosen for the run: runs llm-7-0")


def test_a_run_that_a_pass_placed_tells_why_not_elsewhere(house, vic):
    for number in (1, 2, 3):
        make.machine_make(house, f"gpu-0{number}")
    make.machine_make(house, "gpu-04", model="A100")
    make.run_pending(house)
    cluster_pass(house.cluster.id)

    seen = tiles(vic.get(WAITING))

    assert {name: mark for name, (mark, _) in seen.items()} == {
        "gpu-01": "chosen",
        "gpu-02": "chosen",
        "gpu-03": "fits",
        "gpu-04": "none",
    }
    assert "A100" in seen["gpu-04"][1]


def test_the_legend_leaves_what_fits(busy, vic):
    page = vic.get(f"{WAITING}&show=fits")

    dim = set(re.findall(r'class="tile dim" href="[^"]*/([^"/]+)"', page.content.decode()))
    assert dim == {"gpu-02", "gpu-03", "gpu-04", "gpu-05", "gpu-06"}
    assert "1 machine matches; the others are dimmed." in text(page)


def test_filters_and_opened_racks_keep_the_run(busy, vic):
    page = text(vic.get(WAITING))

    assert '<input type="hidden" name="for" value="vision/ddp-resnet50">' in page
    assert 'href="?fabric=ib-a&rack=r1&for=vision%2Fddp-resnet50"' in page
    assert set(tiles(vic.get(f"{WAITING}&rack=r1"))) == {"gpu-01", "gpu-02"}


def test_the_explanation_leads_there(busy, vic):
    for address in ("jobs/main/ddp-resnet50", "jobs/main/ddp-resnet50/explanation"):
        page = text(vic.get(f"/o/acme/w/vision/{address}"))
        assert (
            '<a href="/o/acme/clusters/main/machines/map?for=vision/ddp-resnet50">Show on the map</a>' in page
        )
    worker = text(vic.get("/o/acme/w/vision/workers/ddp-resnet50-0"))
    assert "map?for=vision/ddp-resnet50" in worker


def test_a_run_that_no_pass_has_judged(house, vic):
    make.machine_make(house, "gpu-01")
    make.run_pending(house)

    assert tiles(vic.get(WAITING))["gpu-01"] == (
        "none",
        "gpu-01, ready, 8 of 8 GPUs free, not judged for the run yet: the next pass does within seconds",
    )


def test_a_run_that_starts_its_workers_on_their_own(house, vic):
    for number in (1, 2):
        make.machine_make(house, f"gpu-0{number}")
    document = make.document_make("sweep", gpus=16, start="Independent")
    del document["spec"]["task_template"]["requested_resources"]["topology"]
    make.run_pending(house, "sweep", document=document)
    cluster_pass(house.cluster.id)

    seen = tiles(vic.get(f"{MAP}?for=vision/sweep"))
    assert {name: label.rpartition(": ")[2] for name, (mark, label) in seen.items() if mark == "chosen"} == {
        "gpu-01": "runs sweep-0",
        "gpu-02": "runs sweep-1",
    }


@pytest.mark.parametrize("key", ["vision/no-such-run", "secret/ddp-resnet50", "ddp-resnet50", "vision/", "/"])
def test_what_one_may_not_see_is_nothing_to_draw_a_map_for(busy, vic, key):
    assert vic.get(f"{MAP}?for={key}").status_code == 404


def test_a_run_of_another_workspace_is_not_told_of(busy):
    other = Workspace.objects.create(organization=busy.organization, slug="speech", name="Speech")
    sam = make.user_make("sam")
    Membership.objects.create(workspace=other, user=sam, role="viewer")

    assert signed_in(sam).get(MAP).status_code == 200
    assert signed_in(sam).get(WAITING).status_code == 404


def test_machines_that_came_after_the_pass_are_not_judged_yet(busy, vic):
    make.machine_make(busy, "gpu-new")

    assert "not judged for the run yet" in tiles(vic.get(WAITING))["gpu-new"][1]
    assert Machine.objects.count() == 7
    assert Run.objects.get(name="ddp-resnet50").state == "Pending"
