"""The Machines page, and the one command that adds a machine."""

import html
import re

from console.pages import machine_list
from machines.models import JoinToken, Machine, Pool
from machines.services import machine_join
from tests import factories as make

MACHINES = "/o/acme/clusters/main/machines"
ADD = f"{MACHINES}/add"


def text(answer):
    return html.unescape(answer.content.decode())


def test_rows_say_what_there_is_and_what_is_free(busy, vic):
    rows = {row.machine.name: row for row in vic.get(MACHINES).context["rows"]}
    assert list(rows) == ["gpu-01", "gpu-02", "gpu-03", "gpu-04", "gpu-05", "gpu-06"]
    shown = {name: (row.counts, row.models, row.fabric.value, row.rack.value) for name, row in rows.items()}
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


def test_filters(busy, vic):
    assert [row.machine.name for row in vic.get(f"{MACHINES}?text=GPU-04").context["rows"]] == ["gpu-04"]
    assert "No machine matches these filters." in text(vic.get(f"{MACHINES}?pool=nothing"))


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


def test_queries_do_not_grow_with_the_machines(busy, vic, django_assert_num_queries):
    vic.get(MACHINES)
    with django_assert_num_queries(16):
        vic.get(MACHINES)
    for number in range(10):
        make.machine_make(busy, f"more-{number}", gpus=1)
    with django_assert_num_queries(16):
        vic.get(MACHINES)


def test_looking_at_the_page_makes_no_token(house, ana):
    ana.get(ADD)
    assert not JoinToken.objects.exists()


def test_the_command_is_shown_once_and_waits_for_the_machine(house, ana, settings):
    answer = ana.post(ADD, {"pool": "h100"})
    command = answer.context["command"]
    token = JoinToken.objects.get()
    server = settings.PUBLIC_URL
    found = re.fullmatch(rf"astraeus-agent join --server {server} --token (asj_\S+) --run", command)
    assert found, command
    [secret] = found.groups()
    assert command in text(answer)
    assert "no-cache" in answer["Cache-Control"]
    assert token.created_by == "ana"
    waiting = ana.get(ADD, {"token": token.id}, headers={"HX-Request": "true"})
    assert "Waiting for the machine… The command works once, for 1 hour." in text(waiting)
    assert "every 2s" in text(waiting)
    assert secret not in text(waiting)
    machine_join(token=secret, name="gpu-17", runtime="docker", agent_version="0.1.0")
    here = text(ana.get(ADD, {"token": token.id}, headers={"HX-Request": "true"}))
    assert "gpu-17 is here: no GPUs" in here
    assert "every 2s" not in here


def test_a_token_of_another_cluster_is_nothing(house, ana):
    for value in ("1", "x", "99999"):
        assert ana.get(ADD, {"token": value}, headers={"HX-Request": "true"}).status_code == 404


def test_the_pool_can_be_chosen(house, ana):
    Pool.objects.create(cluster=house.cluster, slug="a100", name="A100")
    assert "<option>a100</option>" in text(ana.get(ADD)).replace(" selected", "")
    ana.post(ADD, {"pool": "a100"})
    assert JoinToken.objects.get().pool.slug == "a100"
    assert ana.post(ADD, {"pool": "nothing"}).status_code == 404


def test_a_cluster_without_pools_says_so(house, ana):
    Machine.objects.all().delete()
    Pool.objects.all().delete()
    assert "This cluster has no pool yet." in text(ana.get(ADD))
    assert ana.post(ADD).status_code == 404
