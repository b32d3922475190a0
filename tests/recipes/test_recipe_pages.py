"""The pages of docs/recipes: their documents are accepted as they stand, and they name what there is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from machines.states import FABRIC_LABEL, NVLINK_DOMAIN_LABEL, RACK_LABEL
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


TWO_OF_EIGHT = (Shape(2, 8),)
SHAPES = {
    "ddp-resnet50": TWO_OF_EIGHT,
    "chosen": (Shape(1, 16), Shape(2, 8)),
    "ranged": (Shape(2, 16), Shape(4, 8)),
    "nvlink": (Shape(2, 4),),
    "roce": TWO_OF_EIGHT,
    "replicas": (Shape(2, 1),),
    "with-checkpoints": TWO_OF_EIGHT,
    "lightning": TWO_OF_EIGHT,
    "accelerate": TWO_OF_EIGHT,
    "deepspeed": TWO_OF_EIGHT,
    "slurm-script": TWO_OF_EIGHT,
    "one-rack": TWO_OF_EIGHT,
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_recipes_document_is_accepted_as_it_stands(name: str) -> None:
    written = documents()[name]
    document = validate_document(written)

    assert document.as_json() == written
    assert document.groups()[0].template.shapes() == SHAPES[name]


def test_every_document_is_looked_at() -> None:
    assert set(documents()) == set(SHAPES)


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
