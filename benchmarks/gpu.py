"""`./dev bench gpu`: the recipe on this host's own GPUs, through the whole product and bare, in turns.

A console and an agent with this host's real inventory are started, run.h200.json is submitted through the API and its
result read with the command line; then the same script runs bare. With `--split` a second console has two agents on
this host, each with half of the GPUs, and a gang of two workers joins in. Needs a PyTorch that sees the GPUs, in the
Python that runs this. `--simulated N` tries all of it out on the CPU, with N GPUs that are none.
"""

import argparse
import contextlib
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._common import Bench, Machine, console_with
from benchmarks._recipe import Shape, astra, bare, product
from console.local.errors import LocalError
from console.local.instance import ROOT
from wire.gpu_models import short_model

NAME = "gpu-host"
_GIB = 1 << 30
SMALL = {"STEPS": "6", "IMAGE_SIZE": "32", "BATCH_PER_GPU": "2", "ALLREDUCE_MIB": "1", "COMPILE": "off"}
"""For `--simulated`: the variables of a run that a CPU ends in seconds."""

Way = Callable[[int], dict[str, Any]]
"""Runs the recipe for a round; its result."""


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        inventory = _simulated(Path(scratch), options.simulated) if options.simulated else None
        found = _inventory(inventory)
        gpus = [gpu["uuid"] for gpu in found["gpus"]]
        if not gpus or (options.split and len(gpus) % 2):
            raise LocalError(f"This host has {len(gpus)} GPUs; this needs one, and --split an even number.")
        env = {**(SMALL if inventory else {}), **dict(pair.split("=", 1) for pair in options.env)}
        figures = _measure(options, inventory, found, gpus, env)
    print(json.dumps({"host": _host(found), **figures}))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev bench gpu", description="The recipe on real GPUs.")
    parser.add_argument("--rounds", type=int, default=2, help="how often each way is run, in turns (2)")
    parser.add_argument("--split", action="store_true", help="also as a gang of two agents on this host")
    parser.add_argument(
        "--preflight", choices=("none", "links", "allreduce"), default="none", help="check before each start"
    )
    parser.add_argument("--simulated", type=int, default=0, metavar="N", help="on the CPU, with N false GPUs")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of the recipe (repeatable)",
    )
    parser.add_argument(
        "--try",
        action="append",
        default=[],
        dest="tries",
        metavar="NAME=VALUE[,…]",
        help="one more bare run with these variables, to compare settings (repeatable)",
    )
    return parser


def _measure(
    options: argparse.Namespace,
    inventory: Path | None,
    found: dict[str, Any],
    gpus: Sequence[str],
    env: dict[str, str],
) -> dict[str, Any]:
    whole = replace(_whole(found, env), preflight=options.preflight)
    with contextlib.ExitStack() as opened:
        console = opened.enter_context(console_with([Machine(NAME, inventory)]))
        ways: dict[str, Way] = {"product": lambda round_: product(console, f"whole-{round_}", whole)}
        if options.split:
            ways |= _split_ways(opened, inventory, gpus, whole)
        ways["bare"] = lambda _round: bare(whole)
        runs = [
            _told({"how": how, "round": round_, **way(round_)})
            for round_ in range(1, options.rounds + 1)
            for how, way in ways.items()
        ]
        machines = _machines(console)
    tries = [_told({"how": text, **bare(_with(whole, text))}) for text in options.tries]
    return {"machines": machines, "runs": runs, "tries": tries, "summary": _summary(runs, len(gpus))}


def _whole(found: dict[str, Any], env: dict[str, str]) -> Shape:
    """All GPUs in one worker. A host that finds fault with its GPUs is measured all the same, and says so."""
    gpus = found["gpus"]
    memory = found.get("machine", found)["memory_bytes"]
    return Shape(
        machines=1,
        gpus=len(gpus),
        model=short_model(gpus[0]["product"]),
        env=env,
        memory_bytes=min(16 * _GIB, memory // 2 // len(gpus)),
        healthy_only=all(gpu.get("health", "healthy") == "healthy" for gpu in gpus),
    )


def _split_ways(
    opened: contextlib.ExitStack, inventory: Path | None, gpus: Sequence[str], whole: Shape
) -> dict[str, Way]:
    """A gang of two agents, half of the GPUs each; and one GPU alone, for the scaling."""
    half = len(gpus) // 2
    halves = [
        Machine(f"{NAME}-a", inventory, tuple(gpus[:half])),
        Machine(f"{NAME}-b", inventory, tuple(gpus[half:])),
    ]
    console = opened.enter_context(console_with(halves))
    # The workers' host names differ, their host doesn't: so NCCL takes NVLink between them, not a socket.
    gang = replace(whole, machines=2, env={"NCCL_HOSTID": NAME, **whole.env})
    one = replace(whole, gpus=1)
    return {
        "gang": lambda round_: product(console, f"gang-{round_}", gang),
        "bare-1": lambda _round: bare(one),
    }


def _with(shape: Shape, text: str) -> Shape:
    more = dict(pair.split("=", 1) for pair in text.split(","))
    return replace(shape, env={**shape.env, **more})


def _told(run: dict[str, Any]) -> dict[str, Any]:
    """Each result at once on standard error: a host that is lent may be taken back before the end."""
    print(json.dumps(run), file=sys.stderr, flush=True)
    return run


def _summary(runs: Sequence[dict[str, Any]], gpus: int) -> dict[str, Any]:
    """Images/s of each way (mean over the rounds), each over bare's, and over one GPU's times the number of GPUs."""
    ways = dict.fromkeys(run["how"] for run in runs)
    speeds = {how: statistics.fmean(r["images_per_second"] for r in runs if r["how"] == how) for how in ways}
    starts = [run["start_ms"] for run in runs if "start_ms" in run]
    summary: dict[str, Any] = {
        "images_per_second": {how: round(speed, 1) for how, speed in speeds.items()},
        "ratio_to_bare": {how: round(speed / speeds["bare"], 4) for how, speed in speeds.items()},
        "start_ms": {"first": starts[0], "median": statistics.median(starts), "longest": max(starts)},
    }
    if "bare-1" in speeds:
        summary["scaling"] = {
            how: round(speed / speeds["bare-1"] / gpus, 4) for how, speed in speeds.items() if how != "bare-1"
        }
    return summary


def _inventory(simulated: Path | None) -> dict[str, Any]:
    """What the agent would tell of this host, before one runs."""
    if simulated is not None:
        declared: dict[str, Any] = json.loads(simulated.read_text(encoding="utf-8"))
        return declared
    command = [sys.executable, "-m", "agent", "inventory", "--json"]
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _simulated(scratch: Path, count: int) -> Path:
    gpus = [
        {
            "index": index,
            "uuid": f"GPU-5e1ec7ed-0000-4000-8000-{index:012d}",
            "product": "NVIDIA H200",
            "memory_bytes": 150754820096,
        }
        for index in range(count)
    ]
    file = scratch / "inventory.json"
    machine = {"cpu_cores": 64, "memory_bytes": 1 << 40}
    file.write_text(json.dumps({"machine": machine, "gpus": gpus}), encoding="utf-8")
    return file


def _machines(console: Bench) -> Any:
    """The machines as the command line shows them, with their GPUs' health."""
    return astra(console, "astraeus", "machines")


def _host(found: dict[str, Any]) -> dict[str, Any]:
    return {"python": platform.python_version(), "kernel": platform.release(), "inventory": found}
