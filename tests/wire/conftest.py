"""Documents that the tests of the run specification begin with."""

import copy
from typing import Any

import pytest

# The reference's run.json, every character of it.
REFERENCE_TEXT = r"""{
  "metadata": {"name": "ddp-resnet50", "labels": {"project": "fabric-check"}},
  "spec": {
    "start": "Gang",
    "on_failure": "RestartJob",
    "task_template": {
      "image": "nvcr.io/nvidia/pytorch:24.08-py3",
      "command": "bash",
      "args": [
        "-c",
        "echo \"worker $RANK of $WORLD_SIZE on $ASTRAEUS_NODE_NAME, leader $MASTER_ADDR:$MASTER_PORT, $ASTRAEUS_GPU_COUNT GPUs\"; exec torchrun --nnodes=$WORLD_SIZE --nproc-per-node=$ASTRAEUS_GPU_COUNT --node-rank=$RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT /app/train_ddp.py"
      ],
      "env": {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "STEPS": "300", "BATCH_PER_GPU": "256"},
      "time_limit_seconds": 3600,
      "requested_resources": {
        "gpu_requests": {"count": 16, "models": ["H100"], "healthy_only": true},
        "machines": 2,
        "per_gpu": {"cpu_cores": 12, "memory_bytes": 107374182400},
        "network": {"interconnect": "infiniband", "min_gbps": 400},
        "topology": {"keep_within": "fabric", "patience_seconds": 600},
        "node_selection": {"mode": "Any"}
      },
      "configs": []
    }
  }
}
"""  # noqa: E501 - as it stands in the reference

SMALLEST: dict[str, Any] = {
    "metadata": {"name": "hello"},
    "spec": {"task_template": {"image": "busybox", "command": "true"}},
}


@pytest.fixture
def reference_text() -> str:
    return REFERENCE_TEXT


@pytest.fixture
def smallest() -> dict[str, Any]:
    """A document with nothing in it that could be left out."""
    return copy.deepcopy(SMALLEST)
