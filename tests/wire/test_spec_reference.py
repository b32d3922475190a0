"""Every document of the user guide is accepted as written, and says what the guide says."""

import json
from typing import Any

import pytest

from wire.quantities import GIB
from wire.spec import RunDocument, Shape, parse_document, validate_document


def with_resources(text: str, resources: dict[str, Any]) -> RunDocument:
    data = json.loads(text)
    data["spec"]["task_template"]["requested_resources"] = resources
    return validate_document(data)


def test_the_reference_is_accepted_and_keeps_every_value(reference_text):
    document = parse_document(reference_text)

    assert document.as_json() == json.loads(reference_text)
    assert parse_document(reference_text.encode()) == document


def test_the_reference_is_two_workers_of_eight_gpus(reference_text):
    document = parse_document(reference_text)
    (group,) = document.groups()

    assert group.name == ""
    assert group.template.shapes() == (Shape(machines=2, gpus_per_machine=8),)
    assert group.template.amounts(Shape(2, 8)) == (96, 800 * GIB)
    assert document.worker_names([Shape(2, 8)]) == ("ddp-resnet50-0", "ddp-resnet50-1")


def test_the_script_travels_as_a_config(reference_text):
    data = json.loads(reference_text)
    data["spec"]["task_template"]["configs"] = [{"mounts": ["/app/train_ddp.py"], "value": "import os\n"}]

    (config,) = validate_document(data).groups()[0].template.configs

    assert (config.mounts, config.value, config.mode) == (("/app/train_ddp.py",), "import os\n", 0o444)


def test_astraeus_chooses_two_of_eight_or_one_of_sixteen(reference_text):
    document = with_resources(reference_text, {"gpu_requests": {"count": 16, "min_per_machine": 8}})

    assert document.groups()[0].template.shapes() == (Shape(1, 16), Shape(2, 8))


def test_a_range_of_machines_skips_the_uneven_number(reference_text):
    document = with_resources(
        reference_text, {"gpu_requests": {"count": 32}, "topology": {"min_nodes": 2, "max_nodes": 4}}
    )

    assert document.groups()[0].template.shapes() == (Shape(2, 16), Shape(4, 8))


@pytest.mark.parametrize(
    "change",
    [
        {"topology": {"keep_within": "nvlink_domain"}},
        {"network": {"interconnect": "nvlink"}},
        {"network": {"interconnect": "rdma"}},
        {"topology": {"spread": "rack"}},
    ],
    ids=["nvlink domain", "nvlink", "roce", "spread"],
)
def test_a_variation_is_accepted(reference_text, change):
    resources = {"gpu_requests": {"count": 16}, "machines": 2, **change}

    assert with_resources(reference_text, resources).groups()[0].template.shapes() == (Shape(2, 8),)


def test_training_data_is_mounted_read_only(reference_text):
    data = json.loads(reference_text)
    data["spec"]["task_template"]["datavolume_refs"] = [{"name": "imagenet", "mount_path": "/data"}]

    (drive,) = validate_document(data).groups()[0].template.datavolume_refs

    assert (drive.name, drive.mount_path, drive.read_only, drive.sub_path) == (
        "imagenet",
        "/data",
        True,
        None,
    )


def test_another_port_is_accepted(reference_text):
    data = json.loads(reference_text)
    data["spec"]["task_template"]["env"]["MASTER_PORT"] = "29600"

    assert validate_document(data).groups()[0].template.env["MASTER_PORT"] == "29600"
