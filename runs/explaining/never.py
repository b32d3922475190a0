"""Which numbers of a request would have to change for this cluster ever to hold the run."""

from collections.abc import Callable, Mapping
from typing import Any

from placement.phrases import cores, gib
from runs.explaining.alone import possible_for_all, workers_alike
from runs.models import Run
from wire.quantities import MILLI

JSON = dict[str, Any]
Value = Any

POSSIBLE = "possible, then waits"
"""What such a change gives: a place in the queue, not yet a start."""

_LEVELS = {"nvlink_domain": "one NVLink domain", "rack": "one rack", "fabric": "one fabric", None: "anywhere"}
_SPREADS = {"rack": "different racks", "fabric": "different fabrics", None: "no matter where"}
_NETWORKS = {
    "any": "any", "ethernet": "Ethernet", "rdma": "InfiniBand or RoCE", "infiniband": "InfiniBand",
    "nvlink": "NVLink",
}  # fmt: skip


def _models(value: Value) -> str:
    return " or ".join(value) or "any"


_TITLES: Mapping[str, tuple[str, Callable[[Value], str]]] = {
    "gpu_requests.count": ("GPUs", str),
    "gpu_requests.models": ("GPU model", _models),
    "gpu_requests.min_memory_bytes": ("Memory of each GPU at least", gib),
    "machines": ("Machines", str),
    "cpu_millicores": ("Cores of each worker", lambda value: cores(value, unit=False)),
    "per_gpu.cpu_millicores": ("Cores with each GPU", lambda value: cores(value, unit=False)),
    "memory_bytes": ("Memory of each worker", gib),
    "per_gpu.memory_bytes": ("Memory with each GPU", gib),
    "network.min_gbps": ("RDMA port speed at least", lambda value: f"{value} Gb/s" if value else "any"),
    "network.interconnect": ("Network between workers", lambda value: _NETWORKS[value]),
    "topology.keep_within": ("Never leave", lambda value: _LEVELS[value]),
    "topology.spread": ("Spread", lambda value: _SPREADS[value]),
    "node_selection": ("Machines that it may use", str),
}
"""Field of `placement.ever.Change` → its name in the form, and how its values are written."""


def never_changes(run: Run) -> list[JSON]:
    """The changes that the pass found, for a run that the cluster can never hold as it asks."""
    found = (run.explanation or {}).get("wait", {}).get("changes", [])
    if run.parent_id:
        found = possible_for_all(found, workers_alike(run))
    grouped = "worker_groups" in run.document["spec"]
    return [_change(each, grouped=grouped) for each in found]


def _change(change: Mapping[str, Any], *, grouped: bool) -> JSON:
    field, asked, fits = change["field"], change["asked"], change["would_fit"]
    return {
        "code": f"never.{field}",
        "kind": "request",
        "text": _text(field, asked, fits),
        "result": POSSIBLE,
        "patch": None if grouped else _patch(field, fits),  # a patch can't reach into a list
        "action": None,
        "placement": None,
    }


def _text(field: str, asked: Value, fits: Value) -> str:
    if isinstance(fits, Mapping):
        return f"Machines {fits['machines']} and GPUs {fits['gpus']} instead of {asked['machines']} and {asked['gpus']}"
    title, shown = _TITLES[field]
    if field == "node_selection":
        return f"{title}: any"
    return f"{title}: {shown(fits)} instead of {shown(asked)}"


def _patch(field: str, fits: Value) -> JSON:
    """To be merged into the document (RFC 7396)."""
    if isinstance(fits, Mapping):
        resources: JSON = {"machines": fits["machines"], "gpu_requests": {"count": fits["gpus"]}}
    elif field == "node_selection":
        resources = {"node_selection": {"mode": "Any", "pools": None, "machines": None, "match_labels": None}}
    else:
        *parents, name = field.replace("cpu_millicores", "cpu_cores").split(".")
        value = fits // MILLI if name == "cpu_cores" else fits
        resources = {name: value}
        for parent in reversed(parents):
            resources = {parent: resources}
    return {"spec": {"task_template": {"requested_resources": resources}}}
