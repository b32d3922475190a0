"""What one worker's own run asks for, of the document of the whole."""

from collections.abc import Mapping
from typing import Any

from wire.spec import RunDocument, Shape

OF_CHILD: Mapping[str, str] = {"RestartTask": "RestartJob", "RestartJob": "FailJob", "FailJob": "FailJob"}
"""`on_failure` of the run → of a child: alone it restarts itself; what concerns all of them the parent decides."""


def child_document(document: RunDocument, number: int, shape: Shape) -> dict[str, Any]:
    """The filled document of one worker of the group with this number: a gang of one, on one machine.

    Without the files, which stand in the parent's document once and not in every child's.
    """
    data = document.filled()
    spec = data["spec"]
    grouped = "worker_groups" in spec
    template = spec["worker_groups"][number]["task_template"] if grouped else spec["task_template"]
    template.pop("configs", None)
    _alone(template["requested_resources"], shape)
    if grouped:
        spec["worker_groups"] = [spec["worker_groups"][number]]
    spec |= {"start": "Gang", "on_failure": OF_CHILD[spec["on_failure"]]}
    return data


def _alone(resources: dict[str, Any], shape: Shape) -> None:
    """One worker's share. What it asks for by itself stays; what compares workers is of no use to one."""
    if shape.gpus_per_machine:
        resources["gpu_requests"]["count"] = shape.gpus_per_machine
    resources["machines"] = 1
    for name in ("min_nodes", "max_nodes", "spread"):
        resources["topology"].pop(name, None)
