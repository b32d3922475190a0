"""The mesh's page: its range for owners, who is not on it and why for operators; and what a machine's page tells."""

import base64
import html

import pytest

from machines.mesh import mesh_store
from machines.models import Cluster, Machine
from runs.models import Assignment
from wire.mesh import MeshReport

MESH = "/o/acme/clusters/main/mesh"
MACHINES = "/o/acme/clusters/main/machines"
KEY = base64.b64encode((2).to_bytes(32, "big")).decode()


def text(answer) -> str:
    return " ".join(html.unescape(answer.content.decode()).split())


@pytest.fixture
def meshed(busy):
    """gpu-02 and gpu-03, on which llm-7 runs, are on the mesh; gpu-01 could be, and is not."""
    for number, flaw in ((1, "This kernel has no WireGuard."), (2, ""), (3, "")):
        key = base64.b64encode(number.to_bytes(32, "big")).decode()
        said = MeshReport(public_key=key, endpoint=f"10.20.0.{number}:51820", flaw=flaw)
        mesh_store(Machine.objects.select_related("cluster").get(name=f"gpu-0{number}"), said)
    return busy


def on_mesh() -> None:
    for each in Assignment.objects.held():
        each.launch |= {"on_mesh": True}
        each.save()


def test_the_range_who_has_a_part_of_it_and_who_is_not_on_it(meshed, ana, vic):
    page = text(ana.get(MESH))
    assert 'aria-current="page">Mesh</a>' in page
    assert "range <b>100.64.0.0/10</b>" in page
    assert "3 of 16,384 subnets given out" in page
    assert "3 machines without a mesh" in page
    assert "<bdi>gpu-01</bdi></a></td> <td>This kernel has no WireGuard.</td>" in page
    assert vic.get(MESH).status_code == 403
    assert ">Mesh</a>" not in text(vic.get(MACHINES))


def test_another_range_is_set_and_what_can_not_be_is_told_at_its_field(meshed, ana):
    refused = ana.post(MESH, {"mesh_range": "10.20.0.0/16"})
    assert refused.status_code == 422
    assert 'id="mesh-mesh_range-problem">10.20.0.0/16 overlaps with the machines' in text(refused)
    assert 'value="10.20.0.0/16"' in text(refused)

    on_mesh()
    held = ana.post(MESH, {"mesh_range": "10.192.0.0/10"})
    assert "Workers are on the mesh, on gpu-02 for one" in text(held)
    Assignment.objects.update(launch={})
    answer = ana.post(MESH, {"mesh_range": " 10.192.0.0/10 "}, follow=True)
    assert "The mesh's range is 10.192.0.0/10." in text(answer)
    assert Cluster.objects.get(id=meshed.cluster.id).mesh_range == "10.192.0.0/10"
    assert "subnet 10.192.1.0/24" in text(ana.get(f"{MACHINES}/gpu-02"))


def test_a_machine_s_page_tells_its_place_and_operators_its_peers(meshed, ana, vic):
    alone = text(ana.get(f"{MACHINES}/gpu-02"))
    assert "subnet 100.64.1.0/24" in alone
    assert "reached at 10.20.0.2:51820" in alone
    assert f"<code>{KEY}</code>" in alone
    assert "No peers: it shares no gang on the mesh now." in alone
    on_mesh()
    page = text(ana.get(f"{MACHINES}/gpu-02"))
    peers = page[page.index("Peers: machines with which it shares a gang") :]
    assert "<bdi>gpu-03</bdi></a>" in peers[: peers.index("</ul>")]

    seen = text(vic.get(f"{MACHINES}/gpu-02"))
    assert "subnet 100.64.1.0/24" in seen
    assert KEY not in seen
    assert "Peers" not in seen
    assert "Not on the mesh: <bdi>This kernel has no WireGuard.</bdi>" in text(vic.get(f"{MACHINES}/gpu-01"))
    assert "None: its agent runs no containers" in text(vic.get(f"{MACHINES}/gpu-04"))
