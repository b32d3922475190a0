"""The user guide's "Variations": its run with each change as written, over the API, with room and without.

With room: where it lands, on which network, with which variables and devices. Without: the sentence that says why.
"""

import json
from typing import Any

import pytest
from django.db.models import QuerySet

from runs.models import Assignment
from runs.scheduling.passes import cluster_pass
from tests import factories
from tests.runs.variations import VARIATIONS, Variation, build

pytestmark = pytest.mark.django_db
API = "/api/v1/o/acme/w/vision/runs"
RUN = f"{API}/ddp-resnet50"
TOLD = (
    "RANK", "WORLD_SIZE", "ASTRAEUS_GPU_COUNT", "ASTRAEUS_NETWORK", "PET_NNODES", "PET_NPROC_PER_NODE",
    "SLURM_JOB_NODELIST", "SLURM_GPUS_ON_NODE", "NCCL_IB_HCA", "NCCL_IB_DISABLE",
)  # fmt: skip


every_variation = pytest.mark.parametrize("variation", VARIATIONS.values(), ids=VARIATIONS)


@pytest.fixture
def editor(house, api):
    return api(house.bea)


def launched() -> "QuerySet[Assignment]":
    """Of the guide's run."""
    return Assignment.objects.filter(attempt__run__name="ddp-resnet50")


def send(editor: Any, variation: Variation, query: str = "") -> Any:
    return editor.post(API + query, data=json.dumps(variation.document), content_type="application/json")


@every_variation
def test_with_room_it_lands_as_the_guide_says(house, editor, variation):
    build(house, variation.room)
    foreseen = send(editor, variation, "?dry_run=true")
    submitted = send(editor, variation)
    cluster_pass(house.cluster.id)

    assert (foreseen.status_code, submitted.status_code) == (200, 201)
    status = editor.get(RUN).json()["status"]
    assert (status["state"], status["shape"]) == (
        "Starting",
        [{"machines": len(variation.machines), "gpus": variation.gpus}],
    )
    code, text = variation.network
    assert status["network"] == foreseen.json()["placement"]["network"] == {"code": code, "text": text}
    assert [(worker["machine"], len(worker["gpus"])) for worker in status["workers"]] == [
        (name, variation.gpus) for name in variation.machines
    ]


@every_variation
def test_every_worker_gets_the_variables_and_devices_of_its_network(house, editor, variation):
    build(house, variation.room)
    send(editor, variation)
    cluster_pass(house.cluster.id)

    launches = list(launched().order_by("worker__rank").values_list("launch", flat=True))
    workers, gpus = str(len(variation.machines)), str(variation.gpus)
    hca = "=" + ",".join(f"mlx5_{number}:1" for number in range(variation.ports))
    assert [{name: launch["env"].get(name) for name in TOLD} for launch in launches] == [
        {
            "RANK": str(rank),
            "WORLD_SIZE": workers,
            "ASTRAEUS_GPU_COUNT": gpus,
            "ASTRAEUS_NETWORK": variation.network[0],
            "PET_NNODES": workers,
            "PET_NPROC_PER_NODE": gpus,
            "SLURM_JOB_NODELIST": variation.nodelist,
            "SLURM_GPUS_ON_NODE": gpus,
            "NCCL_IB_HCA": hca if variation.ports else None,
            "NCCL_IB_DISABLE": None,
        }
        for rank in range(len(variation.machines))
    ]
    for launch in launches:
        assert len(launch["gpu_uuids"]) == variation.gpus
        assert (launch["rdma"], launch["imex"]) == (variation.ports > 0, variation.imex)
        assert launch["cpu_cores"] == variation.cpu_cores
        assert launch["memory_bytes"] == variation.gpus * 100 * factories.GIB
        assert launch["shm_bytes"] == 64 * factories.GIB


@every_variation
def test_without_room_it_waits_and_says_why(house, editor, variation):
    build(house, variation.no_room)
    submitted = send(editor, variation)
    cluster_pass(house.cluster.id)

    assert submitted.status_code == 201
    status = editor.get(RUN).json()["status"]
    explanation = editor.get(f"{RUN}/explanation").json()
    assert status["state"] == "Pending"
    assert explanation["headline"] == variation.headline
    assert status["reason"] == variation.headline
    rows = {name: row["text"] for row in explanation["machines"] for name in row["machines"]}
    assert rows == variation.rows


def test_the_dataset_is_mounted_for_reading_and_checkpoints_for_writing(house, editor):
    variation = VARIATIONS["Training data"]
    build(house, variation.room)
    send(editor, variation)
    cluster_pass(house.cluster.id)

    mounts = [
        [(mount["source"], mount["mount_path"], mount["read_only"]) for mount in launch["mounts"]]
        for launch in launched().values_list("launch", flat=True)
    ]
    assert mounts == 2 * [[("/srv/imagenet", "/data", True), ("/srv/checkpoints", "/out", False)]]
