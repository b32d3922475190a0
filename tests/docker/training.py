"""A training run of the tests: torch on the CPUs of two machines, whose members meet in both ways that there are."""

import re
from pathlib import Path
from typing import Any

import torch

from tests.docker.image import IMAGE
from tests.docker.whole import Whole
from tests.e2e.documents import gang

PACKAGES = Path(torch.__file__).resolve().parents[1]
"""This interpreter's packages, which workers mount: the image has the same Python and no torch."""
_MEMORY_BYTES = 1 << 30
_TRAIN = """
import os, socket, time
import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
run, steps = os.environ["ASTRAEUS_JOB_NAME"], float(os.environ["STEPS"])
with open(f"/starts/{run}-{rank}", "a") as starts:
    starts.write(os.environ["ASTRAEUS_ATTEMPT"] + "\\n")

def summed(number):
    total = torch.tensor([float(number)])
    dist.all_reduce(total)
    return int(total.item())

def say(way, address):
    print(f"by {way} at {socket.gethostbyname(address)}: {summed(rank + 1)}", flush=True)

dist.init_process_group("gloo")
say("MASTER_ADDR", os.environ["MASTER_ADDR"])
dist.destroy_process_group()
# Another port: who is early must not come to the store that is about to close.
port = int(os.environ["MASTER_PORT"]) + 1
dist.init_process_group("gloo", init_method=f"tcp://{run}:{port}", rank=rank, world_size=size)
say("name", run)
step = 0
while step < steps:
    step += 1
    print(f"step {step} of all: {summed(step)}", flush=True)
    time.sleep(0.1)
dist.destroy_process_group()
"""
_STEP = re.compile(r"^step (\d+) of all: (\d+)$", re.MULTILINE)


def training(name: str, *, steps: float, machines: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """A gang of two; `machines`: the only ones that may be used. Needs the drives of `drives_make`."""
    refs = [
        {"name": "packages", "mount_path": "/packages"},
        {"name": "starts", "mount_path": "/starts", "read_only": False},
    ]
    script = f"exec python3 -c '{_TRAIN}'"
    # It is process 1 of its container, which Linux protects from signals that it doesn't handle.
    document = gang(name, script, image=IMAGE, datavolume_refs=refs, stop_grace_seconds=1, **more)
    template = document["spec"]["task_template"]
    template["env"] = {"PYTHONPATH": "/packages", "STEPS": str(steps), "MASTER_PORT": "29500"}
    template["requested_resources"]["memory_bytes"] = _MEMORY_BYTES
    if machines:
        template["requested_resources"]["node_selection"] = {"mode": "Machines", "machines": list(machines)}
    return document


def drives_make(here: Whole, starts: Path) -> None:
    here.drive("packages", PACKAGES, access="read")
    here.drive("starts", starts, access="write")


def started(here: Whole, worker: str) -> list[int]:
    """The attempts in which the worker's command was executed, once for each time."""
    file = here.drives["starts"] / worker
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def met(log: str) -> dict[str, tuple[str, int]]:
    """Way → (the leader's address by it, the sum of 1 and 2 over it)."""
    found = re.findall(r"^by (\w+) at (\S+): (\d+)$", log, re.MULTILINE)
    return {way: (address, int(total)) for way, address, total in found}


def steps(log: str) -> int:
    """How many steps the worker has printed, each of which must be there, once, in order, and summed right."""
    lines = [(int(number), int(total)) for number, total in _STEP.findall(log)]
    assert lines == [(number, 2 * number) for number in range(1, len(lines) + 1)]
    return len(lines)
