"""From a run and its document to what the placement engine understands."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from machines.models import WorkspacePool
from placement import GroupRequest, Request, Selection
from runs.models import Run
from wire.gpu_models import short_model
from wire.quantities import MILLI
from wire.spec import Group, NodeSelection, RequestedResources, RunDocument

OWN_FAILURE = 16.0
"""How bad a machine is for a run that has just failed there: worse than any that other runs failed on."""


@dataclass(frozen=True)
class Lemons:
    """Machines that runs fail on, for requests that use them last."""

    names: Mapping[int, str] = field(default_factory=dict)
    """Machine id → name."""
    scores: Mapping[int, float] = field(default_factory=dict)
    """Machine id → score, as `runs.lemons.lemon_tiers` has them."""

    @cached_property
    def named(self) -> dict[str, float]:
        return {self.names[key]: score for key, score in self.scores.items() if key in self.names}

    def avoided(self, run: Run) -> dict[str, float]:
        """For this run, with what it has met itself."""
        now = time.time()
        own = {
            self.names[int(machine)]: OWN_FAILURE
            for machine, until in run.avoid_machines.items()
            if until > now and int(machine) in self.names
        }
        return {**self.named, **own}


def request_of(run: Run, document: RunDocument, allowed_pools: frozenset[str], lemons: Lemons) -> Request:
    return request_now(run, request_base(document), allowed_pools, lemons)


def request_base(document: RunDocument) -> Request:
    """What the document alone says; it is good for as long as the document is."""
    return Request(groups=tuple(_group(group) for group in document.groups()))


def request_now(run: Run, base: Request, allowed_pools: frozenset[str], lemons: Lemons) -> Request:
    """With the pools that policy allows and the machines to avoid, which change from pass to pass."""
    return replace(base, allowed_pools=allowed_pools, avoid=lemons.avoided(run))


def pools_allowed(workspace_id: int, cluster_id: int) -> frozenset[str]:
    """The pools of the cluster that the workspace may use."""
    access = WorkspacePool.objects.filter(workspace=workspace_id, pool__cluster=cluster_id)
    return frozenset(access.values_list("pool__slug", flat=True))


def _group(group: Group) -> GroupRequest:
    wanted = group.template.requested_resources
    gpus = wanted.gpu_requests
    topology = wanted.topology
    amounts = None if wanted.per_gpu else wanted.amounts(wanted.shapes()[0])
    return GroupRequest(
        name=group.name,
        gpus=wanted.gpu_count,
        models=frozenset(short_model(model) for model in gpus.models) if gpus else frozenset(),
        healthy_only=bool(gpus and gpus.healthy_only),
        min_memory_bytes=(gpus.min_memory_bytes or 0) if gpus else 0,
        machines=_machines(wanted),
        min_nodes=topology.min_nodes,
        max_nodes=topology.max_nodes,
        min_per_machine=(gpus.min_per_machine or 1) if gpus else 1,
        interconnect=wanted.network.interconnect,
        min_gbps=wanted.network.min_gbps,
        keep_within=topology.keep_within,
        spread=topology.spread,
        selection=_selection(wanted.node_selection),
        cpu_millicores_per_gpu=wanted.per_gpu.cpu_cores * MILLI if wanted.per_gpu else None,
        memory_bytes_per_gpu=wanted.per_gpu.memory_bytes if wanted.per_gpu else None,
        cpu_millicores=amounts[0] * MILLI if amounts else None,
        memory_bytes=amounts[1] if amounts else None,
        drives=frozenset(ref.name for ref in group.template.datavolume_refs),
    )


def _machines(wanted: RequestedResources) -> int | None:
    open_ = wanted.topology.min_nodes is not None or wanted.topology.max_nodes is not None
    if wanted.machines is None and not open_ and not wanted.gpu_count:
        return 1
    return wanted.machines


def _selection(selection: NodeSelection) -> Selection:
    return Selection(
        pools=frozenset(selection.pools) if selection.mode == "Pools" else None,
        machines=frozenset(selection.machines) if selection.mode == "Machines" else None,
        match_labels=selection.match_labels if selection.mode == "Labels" else {},
        exclude_machines=frozenset(selection.exclude_machines),
    )
