"""Which edits ask for nothing new."""

from typing import Any

import pytest

from runs.relaxing import relaxes
from tests.factories import GIB, document_make
from wire.spec import validate_document


def edited(**changes: Any) -> dict[str, Any]:
    """The reference's request with these fields of `requested_resources` set (None: left out)."""
    document = document_make()
    wanted = document["spec"]["task_template"]["requested_resources"]
    wanted["node_selection"] = {"mode": "Pools", "pools": ["a"], "exclude_machines": ["gpu-09"]}
    for name, value in changes.items():
        wanted[name] = value
    document["spec"]["task_template"]["requested_resources"] = {
        name: value for name, value in wanted.items() if value is not None
    }
    return document


def answer(**changes: Any) -> bool:
    return relaxes(validate_document(edited()), validate_document(edited(**changes)))


GPUS = {"count": 16, "models": ["H100"], "healthy_only": True}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gpu_requests": {**GPUS, "healthy_only": False}},
        {"gpu_requests": {**GPUS, "models": ["H100", "H200"]}},
        {"gpu_requests": {**GPUS, "models": []}},
        {"gpu_requests": {**GPUS, "count": 8}},
        {"gpu_requests": {**GPUS, "count": 8}, "machines": 1},
        {"machines": None, "topology": {"min_nodes": 1, "max_nodes": 4, "keep_within": "fabric"}},
        {"per_gpu": {"cpu_cores": 8, "memory_bytes": 50 * GIB}},
        {"network": {"interconnect": "infiniband", "min_gbps": 200}},
        {"network": {"interconnect": "rdma"}},
        {"network": {}},
        {"topology": {}},
        {"topology": {"keep_within": "fabric", "patience_seconds": 600}},
        {"node_selection": {}},
        {"node_selection": {"mode": "Pools", "pools": ["a", "b"]}},
    ],
)
def test_only_relaxed(changes):
    assert answer(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"gpu_requests": {**GPUS, "count": 32}},
        {"gpu_requests": {**GPUS, "models": ["H200"]}},
        {"gpu_requests": {**GPUS, "min_memory_bytes": 90 * GIB}},
        {"gpu_requests": {**GPUS, "count": 12}, "machines": 3},
        {"machines": 4},
        {"machines": None, "topology": {"min_nodes": 4, "max_nodes": 8, "keep_within": "fabric"}},
        {"per_gpu": {"cpu_cores": 13, "memory_bytes": 100 * GIB}},
        {"per_gpu": None},
        {"network": {"interconnect": "nvlink"}},
        {"network": {"interconnect": "infiniband", "min_gbps": 800}},
        {"topology": {"keep_within": "rack"}},
        {"topology": {"keep_within": "fabric", "spread": "machine"}},
        {"node_selection": {"mode": "Pools", "pools": ["b"]}},
        {"node_selection": {"mode": "Labels", "match_labels": {"a": "b"}}},
        {"node_selection": {"exclude_machines": ["gpu-09", "gpu-10"]}},
    ],
)
def test_asks_for_something_new(changes):
    assert not answer(**changes)
