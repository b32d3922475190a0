"""The all-reduce: a process for each GPU of this machine, or one where there is none."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from agent.preflight.within.answers import JOB, MARK, Json, failed
from agent.preflight.within.verdict import neighbours, processes_of

_LOOK_SECONDS = 0.1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def measure_here(job: Json, go: Json, over: threading.Event) -> Json:
    """`over`, once set: somebody has left, and there is nothing to wait for."""
    first = sum(go["shares"][: job["rank"]])
    due = time.monotonic() + job["measure_seconds"]
    ranks: list[subprocess.Popen[bytes]] = []
    for number in range(job["processes"]):
        told = dict(job, step="rank", go=go, process=first + number, local=number)
        ranks.append(
            subprocess.Popen(
                [sys.executable, sys.argv[0]],
                env=dict(os.environ, **{JOB: json.dumps(told)}, **job["variables"]),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        )
    answers = [rank_answer(rank, due, over) for rank in ranks]
    return next((answer for answer in answers if "error" in answer), answers[0])


def rank_answer(process: subprocess.Popen[bytes], due: float, over: threading.Event) -> Json:
    output = None
    while output is None and not over.is_set() and time.monotonic() < due:
        try:
            output, _ = process.communicate(timeout=_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    if output is None:
        process.kill()
        process.communicate()
        return {"error": "the all-reduce was given up" if over.is_set() else "the all-reduce timed out"}
    lines: list[str] = [
        line for line in output.decode(errors="replace").splitlines() if line.startswith(MARK)
    ]
    if not lines:
        return {"error": f"a process of the all-reduce ended with {process.returncode}"}
    found: Json = json.loads(lines[-1][len(MARK) :])
    return {"error": found["text"]} if found.get("ok") is False else found


def rank_measure(job: Json) -> Json:
    """One process of the all-reduce."""
    if find_spec("torch") is None:
        return failed("the image has no PyTorch, which the all-reduce check needs; use `links`", [])
    import torch
    import torch.distributed as dist

    go, nccl = job["go"], job["backend"] == "nccl"
    host, port = go["store"]
    if nccl:
        torch.cuda.set_device(job["local"])
    dist.init_process_group(
        job["backend"],
        init_method=f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}",
        rank=job["process"],
        world_size=sum(go["shares"]),
        timeout=timedelta(seconds=job["measure_seconds"]),
    )
    data = torch.ones(job["elements"], dtype=torch.float32, device="cuda" if nccl else "cpu")
    whole = bandwidth(data, None, sum(go["shares"]), job["rounds"])
    slow = go["floor"] is not None and whole < go["floor"]
    answer = {"gbytes": whole, "pairs": pairs_measure(job, data) if slow else []}
    dist.destroy_process_group()
    return answer


def bandwidth(data: Any, group: Any, size: int, rounds: int) -> float:
    """Bus bandwidth in GB/s, the slowest process's: the same number in all of them."""
    import torch
    import torch.distributed as dist

    def wait() -> None:
        if data.is_cuda:
            torch.cuda.synchronize()

    # Also with one process, where nothing crosses a link: that NCCL can start is worth knowing.
    for _ in range(2):
        dist.all_reduce(data, group=group)
    wait()
    if size == 1:
        return 0.0
    begun = time.perf_counter()
    for _ in range(rounds):
        dist.all_reduce(data, group=group)
    wait()
    seconds = torch.tensor([(time.perf_counter() - begun) / rounds], dtype=torch.float64, device=data.device)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX, group=group)
    return float(data.numel() * 4 * 2 * (size - 1) / size / seconds.item() / 1e9)


def pairs_measure(job: Json, data: Any) -> list[list[Any]]:
    """[machine, machine, GB/s] of neighbours this process belongs to: whose link is slow, once the whole is."""
    import torch.distributed as dist

    shares, found = job["go"]["shares"], []
    for one, other in neighbours(len(shares)):
        members = [*processes_of(one, shares), *processes_of(other, shares)]
        group = dist.new_group(members)  # everybody has to take part in making it
        if job["process"] in members:
            found.append([one, other, bandwidth(data, group, len(members), job["rounds"])])
        dist.barrier()
    return found
