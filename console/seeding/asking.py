"""What runs ask for: a shape, its network, its limits; and the document that says so."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from console.seeding.zones import CORES_PER_GPU, MEMORY_PER_GPU
from wire.spec import validate_document

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    machines: int
    gpus: int
    """On each machine."""
    model: str
    pool: str = ""
    """Where it must run; "": wherever the workspace may."""
    keep_within: str = ""
    infiniband: bool = False
    gbps: int = 0
    limit_hours: int | None = None
    priority: int = 0
    healthy_only: bool = True

    @property
    def total(self) -> int:
        return self.machines * self.gpus

    def document(self, name: str, labels: dict[str, str]) -> Document:
        """Valid, with its defaults filled in."""
        return {**_filled(self), "metadata": {"name": name, "labels": labels}}


@cache
def _filled(ask: Ask) -> Document:
    return validate_document(_document(ask)).filled()


def _document(ask: Ask) -> Document:
    wanted: Document = {
        "gpu_requests": {"count": ask.total, "models": [ask.model], "healthy_only": ask.healthy_only},
        "machines": ask.machines,
        "per_gpu": {"cpu_cores": CORES_PER_GPU, "memory_bytes": MEMORY_PER_GPU},
    }
    if ask.infiniband:
        wanted["network"] = {"interconnect": "infiniband", **({"min_gbps": ask.gbps} if ask.gbps else {})}
    if ask.keep_within:
        wanted["topology"] = {"keep_within": ask.keep_within}
    if ask.pool:
        wanted["node_selection"] = {"mode": "Pools", "pools": [ask.pool]}
    template: Document = {
        "image": "nvcr.io/nvidia/pytorch:24.08-py3",
        "command": "bash",
        "args": ["-c", "exec torchrun --nnodes=$SLURM_NNODES /app/train.py"],
        "env": {"NCCL_DEBUG": "INFO"},
        "requested_resources": wanted,
    }
    if ask.limit_hours:
        template["time_limit_seconds"] = ask.limit_hours * 3600
    spec = {"start": "Gang", "on_failure": "RestartJob", "priority": ask.priority, "task_template": template}
    return {"metadata": {"name": "x"}, "spec": spec}


def urgent(ask: Ask) -> Ask:
    """The same ahead of all others."""
    return replace(ask, priority=100)
