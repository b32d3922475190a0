"""What the program of the checks is told, and what its answer means."""

import io
import json
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from agent.preflight.within.answers import JOB, MARK
from agent.runtime import Program, Ran
from wire.assignments import Assignment, Preflight

JOIN_SECONDS = 60.0
"""How long members wait for each other: the console tells all of them at once, a busy machine takes its time."""
MEASURE_SECONDS = 120.0
LOOK_SECONDS = 60.0
_ENDING_SECONDS = 15.0
_GIGABITS = 8.0
_GPU_ELEMENTS, _CPU_ELEMENTS = 64 << 20, 2 << 20  # 256 MiB and 8 MiB
_GPU_ROUNDS, _CPU_ROUNDS = 20, 5
_WITHIN = Path(__file__).with_name("within")
_PACKAGES = ("agent", "agent/preflight")
_MAIN = "from agent.preflight.within.main import main\n\nmain()\n"
_NO_PYTHON = 127

Step = Literal["look", "meet"]


class Answer(BaseModel):
    """The program's verdict."""

    ok: bool
    text: str
    machines: list[str] = []
    """Those at fault; empty: the one it ran on."""


def program_of(assignment: Assignment, preflight: Preflight, step: Step, *, simulated: bool) -> Program:
    """`simulated`: the machine's devices are none, so that processors take the place of GPUs."""
    job = _job(assignment, preflight, simulated=simulated) | {"step": step}
    job["seconds"] = LOOK_SECONDS if step == "look" else JOIN_SECONDS + MEASURE_SECONDS + _ENDING_SECONDS
    return Program(_packed(), {JOB: json.dumps(job)}, job["seconds"] + _ENDING_SECONDS)


@cache
def _packed() -> bytes:
    """The modules in `within` as one file that Python runs."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", _MAIN)
        for package in _PACKAGES:
            archive.writestr(f"{package}/__init__.py", "")
        for source in sorted(_WITHIN.glob("*.py")):
            archive.write(source, f"agent/preflight/within/{source.name}")
    return packed.getvalue()


def _job(assignment: Assignment, preflight: Preflight, *, simulated: bool) -> dict[str, Any]:
    gpus = 0 if simulated else len(assignment.gpu_uuids)
    ports = {} if simulated else preflight.rdma_ports
    return {
        **preflight.model_dump(include={"machines", "rank", "address", "port", "token"}),
        "gpus": gpus,
        "rdma_devices": sorted({name.partition(":")[0] for name in ports}),
        "shm_bytes": assignment.shm_bytes,
        "measure": preflight.kind == "allreduce",
        "processes": gpus or 1,
        "noun": "GPUs" if gpus else "processes",
        "backend": "nccl" if gpus else "gloo",
        "elements": _GPU_ELEMENTS if gpus else _CPU_ELEMENTS,
        "rounds": _GPU_ROUNDS if gpus else _CPU_ROUNDS,
        # What a machine's ports carry together is what NCCL's ring gets through it, in each direction.
        "gbytes": sum(ports.values()) / _GIGABITS if gpus else 0,
        "variables": _variables(assignment, gpus=gpus),
        "join_seconds": JOIN_SECONDS,
        "measure_seconds": MEASURE_SECONDS,
    }


def _variables(assignment: Assignment, *, gpus: int) -> Mapping[str, str]:
    """With its network named, NCCL fails where it would otherwise fall back to TCP."""
    return {"NCCL_NET": "IB"} if gpus and assignment.rdma else {}


def answer_of(ran: Ran, machine: str) -> Answer:
    """Of a program that ran on `machine`."""
    lines = ran.output.splitlines()
    told = next((line[len(MARK) :] for line in reversed(lines) if line.startswith(MARK)), "")
    try:
        return Answer.model_validate_json(told)
    except ValidationError:
        return Answer(ok=False, text=_unanswered(ran, machine))


def _unanswered(ran: Ran, machine: str) -> str:
    if ran.timed_out:
        return f"it didn't end in time on {machine}"
    if ran.code == _NO_PYTHON:
        return "the image has no Python, which the check needs; leave the check out with `preflight`: `none`"
    last = next((line.strip() for line in reversed(ran.output.splitlines()) if line.strip()), "")
    return ran.error or last or f"it ended with {ran.code} on {machine}"
