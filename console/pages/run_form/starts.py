"""What a new run may start from: the user guide's run and its variations, and the document of another run."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings

from console.pages.run_form.draft import opened, written
from console.pages.run_form.places import JSON, patched, value_set
from runs.models import Run, WorkloadName
from tenancy.models import Workspace
from wire.names import MAX_RUN_NAME
from wire.quantities import GIB

_VERSION = re.compile(r"-v([0-9]{1,4})$")
_SCRIPT = "train_ddp.py"


@dataclass(frozen=True, slots=True)
class Start:
    slug: str
    title: str
    about: str
    name: str
    resources: JSON
    """Merged into `requested_resources` of the guide's run."""
    spec: JSON


def _start(slug: str, title: str, about: str, resources: JSON, *, spec: JSON | None = None) -> Start:
    return Start(slug, title, about, f"ddp-{slug}", resources, spec or {})


STARTS: Final[tuple[Start, ...]] = (
    _start(
        "resnet50", "PyTorch DDP, 2 × 8 GPUs", "InfiniBand check, then ResNet-50 on synthetic images.", {}
    ),
    _start(
        "chosen",
        "Astraeus chooses the machines",
        "16 GPUs, never fewer than 8 on one machine.",
        {"machines": None, "gpu_requests": {"min_per_machine": 8}},
    ),
    _start(
        "range",
        "A range of machines",
        "32 GPUs on 2, 3 or 4 machines.",
        {"machines": None, "gpu_requests": {"count": 32}, "topology": {"min_nodes": 2, "max_nodes": 4}},
    ),
    _start(
        "nvlink",
        "One NVLink domain",
        "GB200 NVL72: 2 × 4 GPUs that share memory.",
        {
            "gpu_requests": {"count": 8, "models": ["GB200"]},
            "network": {"interconnect": "nvlink", "min_gbps": None},
            "topology": {"keep_within": "nvlink_domain"},
        },
    ),
    _start(
        "roce",
        "RoCE or InfiniBand",
        "RDMA of either kind, never plain Ethernet.",
        {"network": {"interconnect": "rdma"}, "topology": {"keep_within": None}},
    ),
    _start(
        "spread",
        "Spread over racks",
        "Replicas that must not fail together.",
        {"network": None, "topology": {"keep_within": None, "patience_seconds": None, "spread": "rack"}},
    ),
    _start(
        "single",
        "One GPU",
        "The smallest run.",
        {
            "gpu_requests": {"count": 1, "models": None},
            "machines": 1,
            "per_gpu": {"cpu_cores": 8, "memory_bytes": 64 * GIB},
            "network": None,
            "topology": None,
        },
        spec={"on_failure": "FailJob"},
    ),
)


def start_text(workspace: Workspace, slug: str) -> str:
    """The document of a start, with a name that is free; empty for an unknown one."""
    start = next((each for each in STARTS if each.slug == slug), None)
    if start is None:
        return ""
    recipe = settings.BASE_DIR / "worker_image"
    document: JSON = json.loads((recipe / "run.json").read_text())
    script = (recipe / _SCRIPT).read_text()
    template = {
        "requested_resources": start.resources,
        "configs": [{"mounts": [f"/app/{_SCRIPT}"], "value": script}],
    }
    document = patched(document, {"spec": {**start.spec, "task_template": template}})
    return _named(document, free_name(workspace, start.name))


def run_text(run: Run) -> str:
    """A run's document as it was submitted, with the labels and the priority that it has now."""
    document, broken = opened(run.submitted)
    if broken:
        return run.submitted
    before = written(document)
    value_set(document, ("metadata", "labels"), run.labels or {})
    if run.priority or "priority" in document.get("spec", {}):
        value_set(document, ("spec", "priority"), run.priority)
    return run.submitted if written(document) == before else written(document)


def clone_text(run: Run) -> str:
    """For another run like this one."""
    document, broken = opened(run_text(run))
    return run.submitted if broken else _named(document, free_name(run.workspace, run.name))


def _named(document: Any, name: str) -> str:
    value_set(document, ("metadata", "name"), name)
    return written(document)


def free_name(workspace: Workspace, name: str) -> str:
    """The name if it is free, else the next of `name-v2`, `name-v3`, … that is."""
    root = _VERSION.sub("", name)
    taken = set(
        WorkloadName.objects.filter(
            workspace=workspace, name__startswith=root[: MAX_RUN_NAME - 6]
        ).values_list("name", flat=True)
    )
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{root[: MAX_RUN_NAME - 6].rstrip('-')}-v{number}"
    return free
