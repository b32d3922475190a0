"""The Machines page: rows, filters in the address, pages by name."""

import html

import pytest
from django.utils import timezone

from console.pages import machine_list
from console.templatetags.astraeus import options
from machines.models import Machine, MachineLabel, Pool
from machines.states import FABRIC_LABEL, RACK_LABEL
from tests import factories as make

MACHINES = "/o/acme/clusters/main/machines"


def text(answer):
    return html.unescape(answer.content.decode())


def test_rows_say_what_there_is_and_what_is_free(busy, vic):
    rows = {row.machine.name: row for row in vic.get(MACHINES).context["rows"]}
    assert list(rows) == ["gpu-01", "gpu-02", "gpu-03", "gpu-04", "gpu-05", "gpu-06"]
    shown = {name: (row.counts, row.models, row.fabric, row.rack) for name, row in rows.items()}
    assert shown["gpu-01"] == ("8 of 8 free", "8 × H100", "ib-a", "r1")
    assert shown["gpu-02"] == ("0 of 8 free", "8 × H100", "ib-a", "r1")
    assert shown["gpu-04"] == ("3 of 8 free, 1 suspect, 1 faulty", "8 × H100", "ib-a", "r2")
    assert shown["gpu-05"] == ("8 of 8 free", "8 × H100", "", "")
    assert shown["gpu-06"] == ("8 of 8 free", "8 × A100", "ib-b", "r3")


def test_cells_draw_each_gpu(busy, vic):
    page = vic.get(MACHINES).content.decode()
    cells = page[page.index("m-cells-") :]
    assert cells.count('class="held"') == 8 + 8 + 4
    assert cells.count('class="faulty"') == 1
    assert cells.count('class="warn"') == 1
    assert page.count(">Simulated<") == 5


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("text=GPU-04", ["gpu-04"]),
        ("state=cordoned", ["gpu-03"]),
        ("state=ready&rack=r1", ["gpu-01", "gpu-02"]),
        ("state=nonsense", []),
        ("pool=nothing", []),
        ("pool=h100&model=A100", ["gpu-06"]),
        ("fabric=ib-b", ["gpu-06"]),
        ("fabric=ib-z", ["gpu-01"]),
        ("fabric=ib-a", ["gpu-02", "gpu-03", "gpu-04"]),
        ("rack=r2", ["gpu-03", "gpu-04"]),
        ("rack=-", ["gpu-05"]),
        ("free=3", ["gpu-01", "gpu-04", "gpu-05", "gpu-06"]),
        ("free=4", ["gpu-01", "gpu-05", "gpu-06"]),
        ("free=8&model=H100&fabric=ib-z", ["gpu-01"]),
    ],
)
def test_filters(busy, vic, query, names):
    Machine.objects.filter(name="gpu-03").update(cordoned_at=timezone.now(), cordoned_by="ana")
    MachineLabel.objects.create(machine=Machine.objects.get(name="gpu-01"), key=FABRIC_LABEL, value="ib-z")
    answer = vic.get(f"{MACHINES}?{query}")
    assert [row.machine.name for row in answer.context["rows"]] == names
    assert ("No machine matches these filters." in text(answer)) is (not names)


def test_a_set_label_hides_a_found_one_from_the_filter(busy, vic):
    MachineLabel.objects.create(machine=Machine.objects.get(name="gpu-04"), key=RACK_LABEL, value="r9")
    assert [row.machine.name for row in vic.get(f"{MACHINES}?rack=r2").context["rows"]] == ["gpu-03"]
    assert [row.machine.name for row in vic.get(f"{MACHINES}?rack=r9").context["rows"]] == ["gpu-04"]


def test_choices_are_what_the_cluster_has(busy, vic):
    Pool.objects.create(cluster=busy.cluster, slug="a100", name="A100")
    choices = vic.get(MACHINES).context["choices"]
    assert choices.pools == ["a100", "h100"]
    assert choices.fabrics == ["ib-a", "ib-b"]
    assert choices.racks == ["r1", "r2", "r3"]
    assert choices.models == ["A100", "H100"]


def test_a_number_that_is_none_is_told(busy, vic):
    answer = vic.get(f"{MACHINES}?free=many")
    assert len(answer.context["rows"]) == 6
    assert "Free GPUs at least must be a number, such as 8." in text(answer)
    assert 'value="many"' in text(answer)


def test_filters_go_along_to_the_map_and_to_the_next_page(busy, vic, monkeypatch):
    monkeypatch.setattr(machine_list, "PAGE_SIZE", 1)
    page = text(vic.get(f"{MACHINES}?rack=r2&free="))
    assert f'href="{MACHINES}/map?rack=r2"' in page
    assert "rack=r2&free=&after=gpu-03" in page


def test_pages(busy, vic, monkeypatch):
    monkeypatch.setattr(machine_list, "PAGE_SIZE", 4)
    first = vic.get(MACHINES).context
    assert (len(first["rows"]), first["older"]) == (4, "gpu-04")
    second = vic.get(f"{MACHINES}?after=gpu-04").context
    assert ([row.machine.name for row in second["rows"]], second["older"]) == (["gpu-05", "gpu-06"], None)


def test_the_live_fragment(busy, vic):
    page = text(vic.get(MACHINES, headers={"HX-Request": "true"}))
    assert page.count("hx-swap-oob") == 18
    assert "<table" not in page


def test_no_machines_yet(house, ana, vic):
    assert "Run one command on a GPU machine to add it." in text(ana.get(MACHINES))
    assert "An operator of acme can add one." in text(vic.get(MACHINES))


def test_an_unknown_cluster(house, ana):
    assert ana.get("/o/acme/clusters/other/machines").status_code == 404


def test_choices_of_a_filter_are_escaped_and_one_is_selected():
    assert options(["<b>", 'r"1'], 'r"1') == ("<option>&lt;b&gt;</option><option selected>r&quot;1</option>")


def test_queries_do_not_grow_with_the_machines(busy, vic, django_assert_num_queries):
    vic.get(MACHINES)
    with django_assert_num_queries(17):
        vic.get(MACHINES)
    for number in range(10):
        make.machine_make(busy, f"more-{number}", gpus=1)
    with django_assert_num_queries(17):
        vic.get(MACHINES)
