"""The documents that go with the recipe say what the user guide and the demo say."""

import json
from pathlib import Path
from typing import Any

RECIPE = Path(__file__).parents[2] / "worker_image"

TORCHRUN = (
    'echo "worker $RANK of $WORLD_SIZE on $ASTRAEUS_NODE_NAME, leader $MASTER_ADDR:$MASTER_PORT, '
    '$ASTRAEUS_GPU_COUNT GPUs"; exec torchrun --nnodes=$WORLD_SIZE --nproc-per-node=$ASTRAEUS_GPU_COUNT '
    "--node-rank=$RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT /app/train_ddp.py"
)
GUIDE: dict[str, Any] = {
    "metadata": {"name": "ddp-resnet50", "labels": {"project": "fabric-check"}},
    "spec": {
        "start": "Gang",
        "on_failure": "RestartJob",
        "task_template": {
            "image": "nvcr.io/nvidia/pytorch:24.08-py3",
            "command": "bash",
            "args": ["-c", TORCHRUN],
            "env": {
                "NCCL_DEBUG": "INFO",
                "NCCL_DEBUG_SUBSYS": "INIT,NET",
                "STEPS": "300",
                "BATCH_PER_GPU": "256",
            },
            "time_limit_seconds": 3600,
            "requested_resources": {
                "gpu_requests": {"count": 16, "models": ["H100"], "healthy_only": True},
                "machines": 2,
                "per_gpu": {"cpu_cores": 12, "memory_bytes": 107374182400},
                "network": {"interconnect": "infiniband", "min_gbps": 400},
                "topology": {"keep_within": "fabric", "patience_seconds": 600},
                "node_selection": {"mode": "Any"},
            },
            "configs": [],
        },
    },
}


def load(name: str) -> Any:
    return json.loads((RECIPE / name).read_text())


def test_run_json_is_the_guides() -> None:
    assert load("run.json") == GUIDE


def test_the_demo_is_the_guides_run_made_small() -> None:
    demo = load("run.demo.json")
    template, guide = demo["spec"]["task_template"], GUIDE["spec"]["task_template"]
    assert (template["command"], template["args"]) == (guide["command"], guide["args"])
    assert (demo["spec"]["start"], demo["spec"]["on_failure"]) == ("Gang", "RestartJob")
    assert template["requested_resources"] == guide["requested_resources"] | {
        "gpu_requests": {"count": 2, "models": ["H100"], "healthy_only": True},
        "per_gpu": {"cpu_cores": 1, "memory_bytes": 2 * 2**30},
        "topology": {"keep_within": "fabric"},
    }
    assert all(isinstance(value, str) for value in template["env"].values())


def test_the_demos_machines_are_two_racks_of_one_fabric() -> None:
    first, second = load("demo/gpu-01.json"), load("demo/gpu-02.json")
    assert [machine["labels"] for machine in (first, second)] == [
        {"topology.astraeus.io/rack": "r1"},
        {"topology.astraeus.io/rack": "r2"},
    ]
    assert {port["subnet_manager"] for machine in (first, second) for port in machine["rdma_ports"]} == {
        "0xfe80000000000001"
    }
    for machine in (first, second):
        assert [gpu["product"] for gpu in machine["gpus"]] == ["NVIDIA H100 80GB HBM3"] * 8
        assert [(port["link_layer"], port["rate_gbps"]) for port in machine["rdma_ports"]] == [
            ("InfiniBand", 400)
        ] * 8
    assert len({gpu["uuid"] for machine in (first, second) for gpu in machine["gpus"]}) == 16
