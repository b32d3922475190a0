"""The map: fabrics → racks → machines → GPUs, the same filters as the list, readable by keyboard and by ear."""

import html
import re
import time

import pytest
from django.utils import timezone

from console.pages import machine_map, machine_tiles
from console.pages.machine_beside import RunBeside
from console.pages.machine_cells import FAULTY, FREE, FREE_SUSPECT, HELD
from console.pages.machine_svg import grid_of, patterns, rack_svg
from console.pages.machine_tiles import Look, standing_of
from machines.models import Fabric, Machine, MachineLabel, RdmaPort
from machines.states import NVLINK_DOMAIN_LABEL
from placement import GpuFacts, MachineFacts, PortFacts, build_snapshot
from tenancy.models import Membership, Workspace
from tests import factories as make
from tests.pages.conftest import signed_in

MAP = "/o/acme/clusters/main/machines/map"


def text(answer):
    return " ".join(html.unescape(answer.content.decode()).split())


def labels(page):
    """Names of the machines' links, in reading order."""
    return re.findall(r'<a id="m-\d+" class="tile(?: dim)?" href="[^"]+" aria-label="([^"]+)"', page)


def dimmed(page):
    return re.findall(r'class="tile dim" href="[^"]+/([^"/]+)"', page)


def test_a_machine_stands_in_its_rack_on_its_fabric(busy, vic):
    page = text(vic.get(MAP))
    headings = re.findall(r"<h2 id=\"fabric-\d\"><bdi>([^<]+)", page)
    assert headings == ["ib-a", "ib-b", "No InfiniBand fabric"]
    assert re.findall(r"<h3>.*?<bdi>([^<]+)</bdi>", page) == ["r1", "r2", "r3", "Rack not known"]
    assert "4 machines · 11 of 32 GPUs free · 1 wholly free" in page
    assert labels(page) == [
        "gpu-01, ready, 8 of 8 GPUs free",
        "gpu-02, ready, 0 of 8 GPUs free",
        "gpu-03, ready, 0 of 8 GPUs free",
        "gpu-04, ready, 3 of 8 GPUs free, 1 suspect, 1 faulty",
        "gpu-06, ready, 8 of 8 GPUs free",
        "gpu-05, ready, 8 of 8 GPUs free",
    ]
    assert 'role="list" aria-label="Rack r1, 8 of 16 GPUs free"' in page


def test_the_legend_counts(busy, vic):
    context = vic.get(MAP).context
    assert {each.word: each.count for each in context["gpus"]} == {
        "Free": 27,
        "Held": 20,
        "Suspect": 1,
        "Faulty": 1,
    }
    assert [(each.word, each.count) for each in context["states"]] == [("Ready", 6)]


def test_equal_machines_share_one_pattern(busy, vic):
    page = vic.get(MAP).content.decode()  # as it is sent: a shape that is escaped is not drawn
    defined = page[page.index("<defs") : page.index("</defs>")]
    assert defined.count("<g id=") == 3  # all free, all held, gpu-04
    assert page.count("<use ") == 6


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("text=gpu-04", {"gpu-04"}),
        ("show=faulty", {"gpu-04"}),
        ("show=held", {"gpu-02", "gpu-03", "gpu-04"}),
        ("model=A100", {"gpu-06"}),
        ("free=8&show=free", {"gpu-01", "gpu-05", "gpu-06"}),
        ("show=nonsense", {"gpu-01", "gpu-02", "gpu-03", "gpu-04", "gpu-05", "gpu-06"}),
    ],
)
def test_other_filters_dim_the_rest(busy, vic, query, left):
    page = text(vic.get(f"{MAP}?{query}"))
    everything = {"gpu-01", "gpu-02", "gpu-03", "gpu-04", "gpu-05", "gpu-06"}
    assert set(dimmed(page)) == everything - left
    assert (f"{len(left)} machine" in page and "match" in page) is (left != everything)


def test_a_rack_opens_alone_with_its_gpus_in_order(busy, vic):
    page = text(vic.get(MAP))
    assert 'href="?fabric=ib-a&rack=r2"' in page
    opened = vic.get(f"{MAP}?fabric=ib-a&rack=r2")
    assert [label.split(",")[0] for label in labels(text(opened))] == ["gpu-03", "gpu-04"]
    tiles = opened.context["fabrics"][0].fabric.racks[0].tiles
    assert list(tiles[1].cells) == [HELD, HELD, HELD, HELD, FREE, FREE_SUSPECT, FREE, FAULTY]


def test_names_are_drawn_while_there_are_few(busy, vic, monkeypatch):
    assert ">gpu-01</text>" in text(vic.get(MAP))
    monkeypatch.setattr(machine_map, "MOST_NAMES", 5)
    page = text(vic.get(MAP))
    assert "</text>" not in page
    assert "Names are hidden at this size. Open a rack, or search." in page


def test_a_rack_of_a_large_cluster_is_a_bar_that_opens(busy, vic, monkeypatch):
    monkeypatch.setattr(machine_tiles, "MOST_TILES", 5)
    page = text(vic.get(MAP))
    assert labels(page) == []
    assert (
        'class="cells rack-bar" width="104" height="12" role="img" aria-label="Rack r2, 3 of 16 GPUs free"'
        in page
    )
    assert 'href="?fabric=ib-a&rack=r2"' in page


def test_the_state_frames_the_tile(busy, vic):
    now = timezone.now()
    Machine.objects.filter(name="gpu-01").update(cordoned_at=now)
    Machine.objects.filter(name="gpu-02").update(draining_at=now)
    Machine.objects.filter(name="gpu-03").update(unreachable_at=now)
    answer = vic.get(MAP)
    page = text(answer)
    assert [label.split(", ")[1] for label in labels(page)][:3] == ["cordoned", "draining", "unreachable"]
    defined = page[page.index("<defs") : page.index("</defs>")]
    assert [defined.count(f'class="{mark}"') for mark in ("bar", "arrow", "lost")] == [1, 1, 1]
    assert [(each.word, each.count) for each in answer.context["states"]] == [
        ("Ready", 3),
        ("Cordoned", 1),
        ("Draining", 1),
        ("Unreachable", 1),
    ]


def test_holders_are_told_apart_only_as_far_as_one_may_see(busy, vic):
    def held(client):
        page = text(client.get(f"{MAP}?by=holder"))
        defined = page[page.index("<defs") : page.index("</defs>")]
        return defined.count('class="held"'), defined.count('class="held half"')

    assert held(vic) == (8 + 4, 0)
    other = Workspace.objects.create(organization=busy.organization, slug="audio", name="Audio")
    Membership.objects.filter(user=busy.vic).update(workspace=other)
    assert held(signed_in(busy.vic)) == (0, 8 + 4)
    assert "tune-9" not in text(signed_in(busy.vic).get(f"{MAP}?by=holder"))


def test_a_machine_on_two_fabrics_says_so(busy, vic):
    machine = Machine.objects.get(name="gpu-01")
    second = Fabric.objects.get(name="ib-b")
    RdmaPort.objects.filter(machine=machine, device="mlx5_0").update(fabric=second)
    assert "gpu-01, ready, 8 of 8 GPUs free, also on ib-b" in labels(text(vic.get(MAP)))


def test_an_nvlink_domain_is_a_bracket_under_its_machines(busy, vic):
    for name in ("gpu-01", "gpu-02"):
        machine = Machine.objects.get(name=name)
        MachineLabel.objects.create(machine=machine, key=NVLINK_DOMAIN_LABEL, value="d1")
    page = text(vic.get(MAP))
    assert page.count('class="bracket"') == 1
    assert "gpu-01, ready, 8 of 8 GPUs free, NVLink domain d1" in labels(page)


def test_the_panel_names_holders(busy, bea):
    panel = text(bea.get("/o/acme/clusters/main/machines/gpu-04?panel=1", headers={"HX-Request": "true"}))
    assert panel.startswith("<h2>")
    assert "held by <bdi>tune-9-0</bdi>" in panel
    assert "suspect: NVLink errors growing, free" in panel


def test_the_panel_names_the_other_machines_of_runs_that_one_may_see(busy, bea):
    gpu2 = "/o/acme/clusters/main/machines/gpu-02?panel=1"
    third = Machine.objects.get(name="gpu-03").id

    panel = text(bea.get(gpu2, headers={"HX-Request": "true"}))
    assert f'data-beside="{third}"' in panel
    assert "<bdi>llm-7</bdi></a> runs here and on gpu-03. </p>" in panel
    other = Workspace.objects.create(organization=busy.organization, slug="audio", name="Audio")
    Membership.objects.filter(user=busy.vic).update(workspace=other)
    hidden = text(signed_in(busy.vic).get(gpu2, headers={"HX-Request": "true"}))
    assert "data-beside" not in hidden
    assert "llm-7" not in hidden


def test_of_many_machines_some_are_named():
    others = dict(enumerate(f"gpu-{number}" for number in range(9)))
    told = RunBeside("sweep", "/", others)
    assert told.words == "gpu-0, gpu-1, gpu-2, gpu-3, gpu-4, gpu-5 and 3 other machines"
    assert told.ids == "0 1 2 3 4 5 6 7 8"


def test_no_machines(house, vic):
    assert "No machines yet." in text(vic.get(MAP))
    make.machine_make(house, "gpu-01")
    assert "No machine stands there." in text(vic.get(f"{MAP}?rack=r9"))


def test_queries_do_not_grow_with_the_machines(busy, vic, django_assert_num_queries):
    vic.get(MAP)
    with django_assert_num_queries(12):
        vic.get(MAP)
    for number in range(10):
        make.machine_make(busy, f"more-{number}", gpus=1)
    with django_assert_num_queries(12):
        vic.get(MAP)


def test_a_thousand_machines_are_drawn_in_less_than_a_second():
    machines = [
        MachineFacts(
            f"gpu-{number:04}",
            id=number + 1,
            rack=f"r{number // 8:03}",
            gpus=tuple(
                GpuFacts(index, held=index < number % 9, suspect=number % 50 == 0 and index == 7)
                for index in range(8)
            ),
            ports=(PortFacts("mlx5_0:1", fabric=f"ib-{number // 500}"),),
        )
        for number in range(1000)
    ]
    snapshot = build_snapshot(machines)
    ids = snapshot.topology.ids
    began = time.perf_counter()
    standing = standing_of(snapshot, ids, ids, Look())
    fabrics, tiles = standing.fabrics, standing.tiles
    grid = grid_of(tiles, names=False)
    defined = patterns(tiles, grid)
    drawn = [rack_svg(rack, grid, lambda name: f"/{name}") for fabric in fabrics for rack in fabric.racks]
    took = time.perf_counter() - began
    assert [(fabric.name, len(fabric.racks)) for fabric in fabrics] == [("ib-0", 63), ("ib-1", 63)]
    assert sum(rack.count("<use ") for rack in drawn) == 1000
    assert defined.count("<g id=") < 20
    assert took < 1, took
