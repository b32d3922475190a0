"""The training recipe, started by the product and bare: the same script with the same variables, results compared."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks._common import Bench, unused_port
from console.local.errors import LocalError
from console.local.instance import ROOT
from console.local.processes import wait_until

IMAGE = ROOT / "worker_image"
SCRIPT = IMAGE / "train_ddp.py"
RUN_SECONDS = 900.0
PLACED_SECONDS = 60.0
STARTED = "process started "
_TOLD = 4000
# NVLink multicast (NVLS) is left alone: on a host whose GPUs others share, a program that uses it can harm them.
_SHARED_HOST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
_OF_THE_HOST = ("LD_LIBRARY_PATH", "CUDA_HOME", "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH")
"""Where the host keeps its driver's libraries, if not where the loader looks anyway."""


@dataclass(frozen=True)
class Shape:
    """What one run of the recipe is given."""

    machines: int
    gpus: int
    """Over all machines."""
    model: str
    env: Mapping[str, str]
    memory_bytes: int
    """For each GPU."""
    healthy_only: bool
    preflight: str = "none"


def common_env(options: Mapping[str, str]) -> dict[str, str]:
    """What a worker and a bare process get alike. `options` win."""
    host = {name: os.environ[name] for name in _OF_THE_HOST if os.environ.get(name)}
    return {**_SHARED_HOST, **host, **_interface(), "PYTHONUNBUFFERED": "1", **options}


def _interface() -> dict[str, str]:
    """NCCL meets over an interface that isn't the loopback one; a host without a network has no other."""
    up = [name for name, stats in psutil.net_if_stats().items() if stats.isup and name != "lo"]
    return {} if up else {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}


def product(bench: Bench, name: str, shape: Shape) -> dict[str, Any]:
    """Submits run.h200.json in that shape through the API; its result as the command line shows it.

    Raises LocalError with the worker's log when it does not succeed.
    """
    document = _document(name, shape)
    begun = time.time()
    bench.api.post("/runs", json=document).raise_for_status()
    _wait_placed(bench, name)
    state = wait_until(lambda: bench.ended(name), seconds=RUN_SECONDS, what=f"the end of {name}")
    log = astra(bench, "astraeus", "logs", f"{name}-0")
    if state != "Succeeded":
        reason = bench.api.get(f"/runs/{name}").json()["status"]["reason"]
        raise LocalError(f"{name} is {state}: {reason}\n{log[-_TOLD:]}")
    logs = [log, *(astra(bench, "astraeus", "logs", f"{name}-{rank}") for rank in range(1, shape.machines))]
    started = max(_started(text) for text in logs)
    result = {**_result(log, begun), "start_ms": round((started - begun) * 1000, 1)}
    return result if shape.preflight == "none" else {**result, "history": _history(bench, name)}


def _document(name: str, shape: Shape) -> dict[str, Any]:
    """Its command says when it began, as its first act: the agent's word would be a little earlier and flatter us."""
    document: dict[str, Any] = json.loads((IMAGE / "run.h200.json").read_text(encoding="utf-8"))
    document["metadata"]["name"] = name
    template = document["spec"]["task_template"]
    template["args"][1] = f'echo "{STARTED}$EPOCHREALTIME"; {template["args"][1]}'
    template["env"] = {**template["env"], **common_env(shape.env), "MASTER_PORT": str(unused_port())}
    template["configs"] = [{"mounts": ["/app/train_ddp.py"], "value": SCRIPT.read_text(encoding="utf-8")}]
    resources = template["requested_resources"]
    resources["machines"] = shape.machines
    resources["gpu_requests"] |= {
        "count": shape.gpus,
        "models": [shape.model],
        "healthy_only": shape.healthy_only,
    }
    resources["per_gpu"]["memory_bytes"] = shape.memory_bytes
    resources["network"] = {"preflight": shape.preflight}
    return document


def _history(bench: Bench, name: str) -> list[str]:
    """Of its first worker, with what the checks before the start found."""
    events = bench.api.get(f"/workers/{name}-0/events").json()["items"]
    return [event["text"] for event in events]


def _wait_placed(bench: Bench, name: str) -> None:
    """Raises LocalError with the run's own reason where it finds no room: it would wait for ever."""
    try:
        wait_until(lambda: bench.state(name) != "Pending", seconds=PLACED_SECONDS, what=f"room for {name}")
    except LocalError:
        reason = bench.api.get(f"/runs/{name}").json()["status"]["reason"]
        raise LocalError(f"{name} is not placed after {PLACED_SECONDS:g} s: {reason}") from None


def astra(bench: Bench, *arguments: str) -> str:
    """What the command line prints, as a person would have it."""
    access = bench.access
    env = {
        **os.environ,
        "ASTRAEUS_SERVER": access.url,
        "ASTRAEUS_TOKEN": access.token,
        "ASTRAEUS_WORKSPACE": f"{access.organization}/{access.workspace}",
    }
    command = [sys.executable, "-m", "astra", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise LocalError(f"astra {' '.join(arguments)} failed: {done.stderr}")
    return done.stdout


def _started(log: str) -> float:
    lines = [line for line in log.splitlines() if line.startswith(STARTED)]
    return float(lines[0].removeprefix(STARTED))


def bare(shape: Shape) -> dict[str, Any]:
    """The same without the product: one torchrun with all GPUs, caches as empty as a sandbox's."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = json.loads((IMAGE / "run.h200.json").read_text(encoding="utf-8"))["spec"]["task_template"]["env"]
    rendezvous = ["--nnodes=1", "--master-addr=127.0.0.1", f"--master-port={unused_port()}"]
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.time()
        done = subprocess.run(
            [_torchrun(), *rendezvous, f"--nproc-per-node={shape.gpus}", str(SCRIPT)],
            cwd=scratch,
            env={**environment, **told, **common_env(shape.env), "TMPDIR": scratch},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
    if done.returncode != 0:
        raise LocalError(f"Bare, the recipe ended with {done.returncode}:\n{done.stdout[-_TOLD:]}")
    return _result(done.stdout, begun)


def _torchrun() -> str:
    beside = Path(sys.executable).parent / "torchrun"
    return str(beside) if beside.exists() else shutil.which("torchrun") or "torchrun"


def _result(log: str, begun: float) -> dict[str, Any]:
    """The recipe's result line, its moments as milliseconds after `begun`."""
    lines = [line for line in log.splitlines() if line.startswith('{"recipe"')]
    if not lines:
        raise LocalError(f"The recipe told no result:\n{log[-_TOLD:]}")
    result: dict[str, Any] = json.loads(lines[-1])
    moments = result.pop("at")
    return {**result, **{f"{name}_ms": round((at - begun) * 1000) for name, at in moments.items()}}
