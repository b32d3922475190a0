"""The recipe as people start it: real processes over Gloo on the CPU."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).parents[2] / "worker_image" / "train_ddp.py"
SMALL = {"STEPS": "2", "IMAGE_SIZE": "32", "BATCH_PER_GPU": "2", "ALLREDUCE_MIB": "1"}
# What the agent sets on every GPU worker; nothing of it may reach Gloo.
NCCL = {
    "NCCL_DEBUG": "WARN",
    "NCCL_SOCKET_IFNAME": "^lo,docker,virbr,veth,cni,wg",
    "NCCL_IB_HCA": "=mlx5_0:1",
}
LONG = SMALL | {"STEPS": "49"}  # reports step 10 with most of the steps still ahead
ON_CPUS = "no GPU is visible to this process: running on CPUs over gloo\n"


@dataclass
class Started:
    process: subprocess.Popen[bytes]
    log: Path

    def text(self) -> str:
        return self.log.read_text()

    def wait(self, seconds: float = 120) -> int:
        return self.process.wait(seconds)

    def wait_for(self, words: str, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.text():
            assert self.process.poll() is None, f"ended before {words!r}:\n{self.text()}"
            assert time.monotonic() < deadline, f"no {words!r} in {seconds} s:\n{self.text()}"
            time.sleep(0.05)


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start(*command, **env) starts the interpreter with `command`; what still runs at the end is killed."""
    started: list[Started] = []

    def begin(*command: object, **env: str) -> Started:
        log = tmp_path / f"{len(started)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *map(str, command)],
                env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **env},
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        started.append(Started(process, log))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            for child in psutil.Process(one.process.pid).children(recursive=True):
                child.kill()
            one.process.kill()
            one.process.wait()


@pytest.fixture
def port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


def torchrun(port: str, *, nodes: int = 1, node: int = 0, processes: int = 1) -> list[str]:
    return [
        "-m", "torch.distributed.run",
        f"--nnodes={nodes}", f"--nproc-per-node={processes}", f"--node-rank={node}",
        "--master-addr=127.0.0.1", f"--master-port={port}", str(SCRIPT),
    ]  # fmt: skip


def worker(port: str, rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def test_two_processes_under_torchrun(start: Start, port: str) -> None:
    run = start(*torchrun(port, processes=2), **SMALL, **NCCL)
    assert run.wait() == 0, run.text()
    assert re.fullmatch(
        ON_CPUS + r"all_reduce 1 MiB over 2 CPU processes: \d+\.\d+ ms, bus bandwidth \d+(\.\d+)? GB/s\n"
        r"verdict: \d+(\.\d+)? GB/s: what this machine's memory should give is not known here; "
        r"LINK_GB_PER_SECOND tells it\n"
        r"step 1/2 loss \d+\.\d{3}\n"
        r"astraeus-metric loss=[\d.e-]+ images_per_second=[\d.]+ step=1\n"
        r"step 2/2 loss \d+\.\d{3}\n"
        r"astraeus-metric loss=[\d.e-]+ images_per_second=[\d.]+ step=2\n"
        r"throughput: \d+(\.\d+)? images/s on 2 CPU processes\n"
        r"\{.*\}\n",
        run.text(),
    ), run.text()


def test_bare_it_is_a_run_of_one(start: Start) -> None:
    run = start(SCRIPT, **SMALL)
    assert run.wait() == 0, run.text()
    assert "all_reduce 1 MiB over 1 CPU process: " in run.text()
    assert "(one process: nothing crosses a link)\n" in run.text()
    *_, throughput, result = run.text().splitlines()
    assert throughput.endswith(" images/s on 1 CPU process")
    found = json.loads(result)
    assert throughput.startswith(f"throughput: {found['images_per_second']} ")
    assert (found["recipe"], found["device"], found["steps"]) == ("train_ddp", "cpu", 2)
    assert [size["mib"] for size in found["bandwidth"]] == [1]
    assert found["peak_memory_bytes"] > 2**27


def test_a_bad_option_is_one_line_and_exit_code_2(start: Start) -> None:
    run = start(SCRIPT, **SMALL | {"STEPS": "many"})
    assert run.wait() == 2
    assert run.text() == "train_ddp: STEPS must be a whole number from 1 to 1000000000, not 'many'\n"


def test_a_bad_option_is_said_once_a_worker(start: Start, port: str) -> None:
    run = start(*torchrun(port, processes=2), **SMALL | {"BATCH_PER_GPU": "0"})
    assert run.wait() != 0
    assert run.text().count("train_ddp: BATCH_PER_GPU must be a whole number") == 1


def test_sigterm_to_one_worker_ends_both_after_the_same_step(start: Start, port: str) -> None:
    leader = start(SCRIPT, **LONG, **worker(port, 0))
    member = start(SCRIPT, **LONG, **worker(port, 1))
    leader.wait_for("step 10/49")
    member.process.send_signal(signal.SIGTERM)
    assert (leader.wait(30), member.wait(30)) == (143, 143)
    assert re.search(r"^stopped by SIGTERM after step 1\d/49\n\Z", leader.text(), re.MULTILINE)
    assert "Traceback" not in leader.text() + member.text()


def test_sigterm_to_torchrun_leaves_nothing_behind(start: Start, port: str) -> None:
    run = start(*torchrun(port, processes=2), **LONG)
    run.wait_for("step 10/49")
    ranks = psutil.Process(run.process.pid).children(recursive=True)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait(30) != 0
    assert len(ranks) == 2
    assert psutil.wait_procs(ranks, timeout=5)[1] == []
    assert re.search(r"^stopped by SIGTERM after step \d+/49$", run.text(), re.MULTILINE), run.text()


def test_sigterm_while_waiting_for_the_others(start: Start, port: str) -> None:
    run = start(SCRIPT, **SMALL, **worker(port, 0))
    run.wait_for(ON_CPUS)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait(5) == 143
    assert run.text() == ON_CPUS + "stopped by SIGTERM before training\n"


def test_sigterm_while_another_rank_hangs(start: Start, port: str) -> None:
    leader = start(SCRIPT, **LONG, **worker(port, 0))
    member = start(SCRIPT, **LONG, **worker(port, 1))
    leader.wait_for("step 10/49")
    member.process.send_signal(signal.SIGSTOP)
    leader.process.send_signal(signal.SIGTERM)
    assert leader.wait(20) == 143
    assert leader.text().endswith("stopped by SIGTERM in the middle of a step that did not end within 10 s\n")


def test_stopped_and_resumed_it_ends_with_the_same_loss(start: Start, port: str, tmp_path: Path) -> None:
    """Two workers, as a preempted run's: stopped by SIGTERM, started again, compared with two left alone."""
    options = SMALL | {
        "STEPS": "12",
        "BATCH_PER_GPU": "8",
    }  # enough images not to be learned by heart by then

    def pair(**env: str) -> tuple[Started, Started]:
        leader = start(SCRIPT, **options, **worker(port, 0), **env)
        return leader, start(SCRIPT, **options, **worker(port, 1), **env)

    kept = {"CHECKPOINT_DIR": str(tmp_path / "drive")}
    leader, member = pair(**kept, ASTRAEUS_ATTEMPT="1")
    leader.wait_for("step 3/12")
    leader.process.send_signal(signal.SIGTERM)
    assert (leader.wait(), member.wait()) == (143, 143), leader.text()
    assert re.search(r"^checkpoint: step \d+ in .*/drive/checkpoint-1\.pt\n\Z", leader.text(), re.MULTILINE)

    again, member = pair(**kept, ASTRAEUS_ATTEMPT="2")
    assert (again.wait(), member.wait()) == (0, 0), again.text() + member.text()
    assert re.search(r"^resumed after step \d+ from .*/drive/checkpoint-1\.pt$", again.text(), re.MULTILINE)
    assert [file.name for file in (tmp_path / "drive").iterdir()] == ["checkpoint-2.pt"]

    done, member = pair(**kept, ASTRAEUS_ATTEMPT="3")
    assert (done.wait(), member.wait()) == (0, 0), done.text() + member.text()
    assert done.text().endswith("step 12 is done already and STEPS is 12: nothing is left to train\n")

    alone, member = pair()
    assert (alone.wait(), member.wait()) == (0, 0), alone.text()
    results = [json.loads(run.text().splitlines()[-1]) for run in (again, alone)]
    assert results[0]["loss"] == results[1]["loss"] > 0


def test_workers_that_see_different_checkpoints_fail_both(start: Start, port: str, tmp_path: Path) -> None:
    """CHECKPOINT_DIR on each machine's own disk: nothing is trained, and the run does not count as done."""
    kept = {"CHECKPOINT_DIR": str(tmp_path / "of-the-leader")}
    assert start(SCRIPT, **SMALL, **kept).wait() == 0
    leader = start(SCRIPT, **SMALL | {"STEPS": "4"}, **kept, **worker(port, 0))
    member = start(
        SCRIPT, **SMALL | {"STEPS": "4"}, CHECKPOINT_DIR=str(tmp_path / "of-the-member"), **worker(port, 1)
    )
    assert (leader.wait(), member.wait()) == (2, 2), leader.text() + member.text()
    assert leader.text().endswith(
        "train_ddp: not all workers see the same checkpoint: CHECKPOINT_DIR must be on a drive they share\n"
    )
