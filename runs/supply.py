"""What GPUs there are for a workspace: the counts beside each model of the New run form."""

from dataclasses import dataclass

import numpy as np

from machines.models import Cluster
from placement import MachineState, Snapshot
from placement.snapshot import FREE_HEALTHY, FREE_SUSPECT, GPU_FAULTY, GPU_PRESENT
from runs.scheduling.request import pools_allowed
from runs.scheduling.snapshot import cluster_snapshot
from tenancy.models import Workspace


@dataclass(frozen=True, slots=True)
class Supply:
    """GPUs of one model on machines that the workspace may use."""

    model: str
    free: int
    """On machines that take work."""
    total: int
    """Faulty ones left out."""


def gpu_supply(workspace: Workspace, cluster: Cluster) -> tuple[Supply, ...]:
    """By model, those with the most GPUs first."""
    return _supply(cluster_snapshot(cluster).snapshot, pools_allowed(workspace.id, cluster.id))


def _supply(snapshot: Snapshot, pools: frozenset[str]) -> tuple[Supply, ...]:
    topology, gpus = snapshot.topology, snapshot.gpu_state
    open_pools = [row for row, pool in enumerate(topology.pools) if pool in pools]
    reached = np.isin(topology.pool, open_pools)[:, None] & (topology.gpu_model >= 0)
    there = reached & ((gpus & GPU_PRESENT) != 0) & ((gpus & GPU_FAULTY) == 0)
    ready = (snapshot.state == MachineState.READY)[:, None]
    free = there & ready & ((gpus == FREE_HEALTHY) | (gpus == FREE_SUSPECT))
    counts = (np.bincount(topology.gpu_model[mask], minlength=len(topology.models)) for mask in (free, there))
    found = zip(topology.models, *counts, strict=True)
    supply = (Supply(model, int(left), int(total)) for model, left, total in found if total and model)
    return tuple(sorted(supply, key=lambda each: (-each.total, each.model)))
