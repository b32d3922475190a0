"""The pages of docs/recipes: their documents are accepted and placed as they stand, and they name what there is."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from machines.states import FABRIC_LABEL, NVLINK_DOMAIN_LABEL, RACK_LABEL
from runs.scheduling.passes import cluster_pass
from tests import factories
from tests.runs.variations import FOUR, Box, boxes, build, trays
from wire.environment import WorkerFacts, worker_environment
from wire.spec import Shape, validate_document

PAGES = Path(__file__).parents[2] / "docs" / "recipes"
DOCUMENT = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def documents() -> dict[str, Any]:
    """By the run's name."""
    found = [
        json.loads(text) for page in sorted(PAGES.glob("*.md")) for text in DOCUMENT.findall(page.read_text())
    ]
    return {document["metadata"]["name"]: document for document in found}


@dataclass(frozen=True)
class Recipe:
    """What a page's document asks for, and where it lands on a cluster that has room for it."""

    shapes: Sequence[Shape]
    room: Sequence[Box]
    machines: Sequence[str]
    """In rank order."""
    network: str
    shape: int = 0
    """Which of the shapes has room."""


FABRIC = Recipe(
    shapes=(Shape(2, 8),),
    room=[Box("gpu-01", rdma=""), Box("gpu-02", held=True), *boxes("gpu-03", "gpu-04")],
    machines=("gpu-03", "gpu-04"),
    network="ib_rack",
)
"""Two machines of 8 on one InfiniBand fabric, beside one without a port and one that another run has."""

RECIPES: Mapping[str, Recipe] = {
    "ddp-resnet50": FABRIC,
    "chosen": Recipe(
        shapes=(Shape(1, 16), Shape(2, 8)),
        room=[Box("big-01", gpus=16, held=True), *boxes("gpu-01", "gpu-02")],
        machines=("gpu-01", "gpu-02"),
        network="ib_rack",
        shape=1,
    ),
    "ranged": Recipe(
        shapes=(Shape(2, 16), Shape(4, 8)),
        room=boxes(*FOUR),
        machines=FOUR,
        network="ib_rack",
        shape=1,
    ),
    "nvlink": Recipe(
        shapes=(Shape(2, 4),),
        room=[*trays("gpu-03", domain="d1"), *trays("gpu-01", "gpu-02", domain="d2")],
        machines=("gpu-01", "gpu-02"),
        network="nvlink_domain",
    ),
    "roce": Recipe(
        shapes=(Shape(2, 8),),
        room=[Box("gpu-01", rdma=""), *boxes("gpu-02", "gpu-03", rdma="roce")],
        machines=("gpu-02", "gpu-03"),
        network="roce_rack",
    ),
    "replicas": Recipe(
        shapes=(Shape(2, 1),),
        room=[*boxes("gpu-01", "gpu-02"), Box("gpu-03", rack="r2")],
        machines=("gpu-01", "gpu-03"),
        network="ib_fabric",
    ),
    "with-checkpoints": Recipe(
        shapes=(Shape(2, 8),),
        room=[Box("apart-01", pool="apart"), *boxes("gpu-01", "gpu-02")],
        machines=("gpu-01", "gpu-02"),
        network="ib_rack",
    ),
    "lightning": FABRIC,
    "accelerate": FABRIC,
    "deepspeed": FABRIC,
    "slurm-script": FABRIC,
    "one-rack": Recipe(
        shapes=(Shape(2, 8),),
        room=[Box("gpu-01"), *boxes("gpu-02", "gpu-03", rack="r2")],
        machines=("gpu-02", "gpu-03"),
        network="ib_rack",
    ),
}
every_recipe = pytest.mark.parametrize("name", RECIPES)


@every_recipe
def test_a_recipes_document_is_accepted_as_it_stands(name: str) -> None:
    written = documents()[name]
    document = validate_document(written)

    assert document.as_json() == written
    assert document.groups()[0].template.shapes() == RECIPES[name].shapes


@pytest.mark.django_db
@every_recipe
def test_a_recipe_lands_where_its_page_says(house: factories.House, api: Any, name: str) -> None:
    editor, runs, recipe = api(house.bea), "/api/v1/o/acme/w/vision/runs", RECIPES[name]
    build(house, recipe.room)
    submitted = editor.post(runs, data=json.dumps(documents()[name]), content_type="application/json")
    cluster_pass(house.cluster.id)

    assert submitted.status_code == 201, submitted.json()
    status = editor.get(f"{runs}/{name}").json()["status"]
    assert (status["state"], status["network"]["code"]) == ("Starting", recipe.network), status["reason"]
    gpus = recipe.shapes[recipe.shape].gpus_per_machine
    assert [(worker["machine"], len(worker["gpus"])) for worker in status["workers"]] == [
        (machine, gpus) for machine in recipe.machines
    ]


def test_every_document_is_looked_at() -> None:
    assert set(documents()) == set(RECIPES)


def test_every_page_is_in_the_list_and_every_link_leads_somewhere() -> None:
    links = {
        (page.name, link)
        for page in PAGES.glob("*.md")
        for link in re.findall(r"\]\(([^)#]+\.md)\)", page.read_text())
    }
    assert [link for link in links if not (PAGES / link[1]).exists()] == []
    assert {page.name for page in PAGES.glob("*.md")} == {"README.md"} | {
        link for page, link in links if page == "README.md" and "/" not in link
    }


def test_every_variable_of_a_worker_is_explained() -> None:
    facts = WorkerFacts(
        run="r", worker="r-0", workspace="w", cluster="c", attempt=1, job_id=1, rank=0, world_size=2,
        group_name="", group_rank=0, group_size=2, gpu_count=8, cpus=96, machine="gpu-01",
        hostnames=("gpu-01", "gpu-02"), leader_address="10.20.0.11", leader_worker="r-0", master_port=29500,
        network="ib_fabric", ib_ports=("mlx5_0:1",),
    )  # fmt: skip
    page = (PAGES / "inside-a-worker.md").read_text()

    assert [name for name in worker_environment(facts) if f"`{name}`" not in page] == []


def test_the_labels_are_those_that_placement_reads() -> None:
    page = (PAGES / "pools-labels-topology.md").read_text()

    assert re.findall(r"^\| `(topology\.\S+)` \|", page, re.MULTILINE) == [
        FABRIC_LABEL, RACK_LABEL, NVLINK_DOMAIN_LABEL,
    ]  # fmt: skip
