"""The kinds of machines: each zone is one network with a pool of its own."""

from dataclasses import dataclass

GIB = 1 << 30
GPUS = 8
"""On every machine."""
RACK = 8
"""Machines in a rack."""
CORES, MEMORY = 128, 2048 * GIB
CORES_PER_GPU, MEMORY_PER_GPU = 12, 160 * GIB


@dataclass(frozen=True, slots=True)
class Zone:
    pool: str
    share: float
    """Of the cluster's machines."""
    model: str
    product: str
    gpu_memory: int
    fabric: str
    """Name of the compute fabric; "" for machines without RDMA."""
    link: str = "InfiniBand"
    gbps: int = 400
    nvlink_domains: bool = False
    """Each rack is one NVLink domain."""


ZONES = (
    Zone("train", 0.30, "H100", "NVIDIA H100 80GB HBM3", 80 * GIB, "ib-a"),
    Zone("lab", 0.25, "H100", "NVIDIA H100 80GB HBM3", 80 * GIB, "ib-b"),
    Zone("large", 0.20, "H200", "NVIDIA H200", 141 * GIB, "ib-c", nvlink_domains=True),
    Zone("older", 0.15, "A100", "NVIDIA A100-SXM4-80GB", 80 * GIB, "ib-d", gbps=200),
    Zone("small", 0.10, "L40S", "NVIDIA L40S", 48 * GIB, ""),
)
