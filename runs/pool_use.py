"""What there is in the pools of a cluster: machines, and GPUs that a run could be given; who may use them, in words."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from machines.models import Cluster
from machines.pools import Share
from placement.phrases import plural
from placement.snapshot import GPU_FAULTY, GPU_HELD, GPU_PRESENT
from runs.scheduling.snapshot import cluster_snapshot


@dataclass(frozen=True, slots=True)
class PoolSize:
    machines: int = 0
    gpus_total: int = 0
    gpus_free: int = 0
    """Held by nothing, and not faulty."""


def pool_sizes(cluster: Cluster) -> dict[str, PoolSize]:
    """By the pool's name; one without machines is left out. From the snapshot: 80,000 rows of GPUs take long."""
    snapshot = cluster_snapshot(cluster).snapshot
    topology, gpus = snapshot.topology, snapshot.gpu_state
    present = (gpus & GPU_PRESENT) != 0
    free = present & ((gpus & (GPU_HELD | GPU_FAULTY)) == 0)
    size = len(topology.pools)
    counts = (
        np.bincount(topology.pool, weights=each, minlength=size).astype(int).tolist()
        for each in (np.ones_like(topology.pool), present.sum(axis=1), free.sum(axis=1))
    )
    return {
        pool: PoolSize(*numbers)
        for pool, numbers in zip(topology.pools, zip(*counts, strict=True), strict=True)
    }


def shares_words(workspaces: Mapping[str, Share]) -> str:
    """`vision (64 GPUs at most, 8 guaranteed), audio`; `none`."""
    told = []
    for slug, share in sorted(workspaces.items()):
        limits = [f"{plural(share.gpu_cap, 'GPU')} at most"] if share.gpu_cap is not None else []
        limits += [f"{share.guaranteed_gpus:,} guaranteed"] if share.guaranteed_gpus else []
        told.append(f"{slug} ({', '.join(limits)})" if limits else slug)
    return ", ".join(told) or "none"
