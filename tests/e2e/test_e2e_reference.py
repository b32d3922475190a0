"""The guide's run, by the guide's command lines, and a torchrun job small enough for a CPU."""

import json
import re
import shutil
import signal
import sys

import pytest

from console.local.instance import ROOT
from tests.e2e import guide as lines
from tests.e2e.documents import rendezvous_port
from tests.e2e.world import eventually

pytestmark = pytest.mark.processes

TRAINING_SECONDS = 120.0
"""Importing torch four times takes a busy machine long."""

IMAGE = ROOT / "worker_image"
PORTS = ",".join(f"mlx5_{number}:1" for number in range(8))


@pytest.fixture
def guide(tmp_path):
    """A directory with the guide's files."""
    for name in ("run.json", "train_ddp.py"):
        shutil.copy(IMAGE / name, tmp_path)
    return tmp_path


@pytest.fixture
def small_guide(guide):
    """The same with a run.json that two CPU cores can train."""
    document = json.loads((IMAGE / "run.demo.json").read_text())
    document["spec"]["task_template"]["env"] = {
        "STEPS": "2",
        "IMAGE_SIZE": "32",
        "BATCH_PER_GPU": "2",
        "ALLREDUCE_MIB": "1",
        "OMP_NUM_THREADS": "1",
        "MASTER_PORT": rendezvous_port(),
    }
    (guide / "run.json").write_text(json.dumps(document))
    return guide


@pytest.fixture
def type_line(here, tmp_path_factory):
    """Types a line and returns what it prints; it must succeed and say nothing on stderr."""
    programs = tmp_path_factory.mktemp("bin")
    astra = programs / "astra"  # as `pip install .` gives it
    astra.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m astra "$@"\n')
    astra.chmod(0o755)

    def typed(line, cwd=ROOT):
        done = here.shell(f'PATH="{programs}:$PATH"; {line}', cwd=cwd, seconds=TRAINING_SECONDS)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return typed


def environment(rank, job_id, port, **env):
    """All variables of one of the two workers."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "ASTRAEUS_GPU_COUNT": "8",
        "ASTRAEUS_WORLD_SIZE": "2",
        "ASTRAEUS_REPLICA_INDEX": str(rank),
        "ASTRAEUS_LEADER_ADDRESS": "127.0.0.1",
        "ASTRAEUS_LEADER_TASK_NAME": "ddp-resnet50-0",
        "ASTRAEUS_TASK_NAME": f"ddp-resnet50-{rank}",
        "ASTRAEUS_NODE_NAME": f"gpu-0{rank + 1}",
        "ASTRAEUS_JOB_NAME": "ddp-resnet50",
        "ASTRAEUS_WORKSPACE": "vision",
        "ASTRAEUS_CLUSTER": "main",
        "ASTRAEUS_ATTEMPT": "1",
        "ASTRAEUS_NETWORK": "ib_fabric",
        "ASTRAEUS_GROUP_NAME": "",
        "ASTRAEUS_GROUP_RANK": str(rank),
        "ASTRAEUS_GROUP_SIZE": "2",
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "8",
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": port,
        "SLURM_PROCID": str(rank),
        "SLURM_NODEID": str(rank),
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": "2",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NTASKS": "2",
        "SLURM_NPROCS": "2",
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_TASKS_PER_NODE": "1(x2)",
        "SLURM_JOB_NAME": "ddp-resnet50",
        "SLURM_JOB_ID": str(job_id),
        "SLURM_JOB_NODELIST": "gpu-[01-02]",
        "SLURM_NODELIST": "gpu-[01-02]",
        "SLURMD_NODENAME": f"gpu-0{rank + 1}",
        "SLURM_CPUS_ON_NODE": "96",
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_RESTART_COUNT": "0",
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
        "NCCL_ASYNC_ERROR_HANDLING": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "NCCL_SOCKET_IFNAME": "^lo,docker,virbr,veth,cni,wg",
        "NCCL_IB_HCA": f"={PORTS}",
        **env,
    }


def test_the_guides_run_as_written(here, guide, type_line):
    here.submitted.append("ddp-resnet50")

    assert type_line(lines.ATTACH, guide) == ""
    assert type_line(lines.SUBMIT, guide) == "ddp-resnet50\n"

    status = here.wait("ddp-resnet50", "Starting", "Running")
    assert status["network"] == {"code": "ib_fabric", "text": "one InfiniBand fabric"}
    assert status["shape"] == [{"machines": 2, "gpus": 8}]
    assert [(w["name"], w["machine"], len(w["gpus"])) for w in status["workers"]] == [
        ("ddp-resnet50-0", "gpu-01", 8),
        ("ddp-resnet50-1", "gpu-02", 8),
    ]
    eventually(lambda: "worker 1 of 2" in here.log("ddp-resnet50-1"), "worker 1 has begun")
    port = here.master_port("ddp-resnet50")
    for rank in (0, 1):
        assert here.log(f"ddp-resnet50-{rank}").splitlines()[0] == (
            f"worker {rank} of 2 on gpu-0{rank + 1}, leader 127.0.0.1:{port}, 8 GPUs"
        )

    deleted = json.loads(type_line(lines.DELETE_BY_API))

    assert deleted["metadata"]["name"] == "ddp-resnet50"
    eventually(lambda: here.api.get("/runs/ddp-resnet50").status_code == 404, "the run is gone")


def test_the_guides_run_by_the_command_line(here, type_line):
    """The script would be in the image, which these machines don't have: torchrun finds none."""
    here.submitted.append("ddp-resnet50")

    printed = type_line(lines.RUN)

    assert printed == (
        f"ddp-resnet50 submitted to main: {here.access.url}/o/acme/w/vision/jobs/main/ddp-resnet50\n"
    )
    status = here.wait("ddp-resnet50", "Starting", "Running")
    assert status["shape"] == [{"machines": 2, "gpus": 8}]
    template = here.run("ddp-resnet50")["spec"]["task_template"]
    assert template["image"] == "registry.example.com/ml/ddp-check:1"
    assert (template["command"], template["args"]) == ("bash", ["-c", lines.RUN.split("'")[1]])
    assert template["env"] == {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    assert template["time_limit_seconds"] == 3600
    resources = template["requested_resources"]
    assert (resources["gpu_requests"]["count"], resources["machines"]) == (16, 2)
    assert resources["per_gpu"] == {"cpu_cores": 12, "memory_bytes": 107374182400}

    assert type_line(lines.DELETE) == "ddp-resnet50 deleted\n"
    assert type_line(lines.RUNS) == lines.HEAD


def test_every_variable_of_both_workers(here):
    document = json.loads((IMAGE / "run.json").read_text())
    template = document["spec"]["task_template"]
    template |= {"command": "env", "args": []}
    template["env"]["MASTER_PORT"] = port = rendezvous_port()

    name = here.submit(document)
    here.wait(name, "Succeeded")

    [(job_id,)] = here.sql("SELECT id FROM runs_run WHERE name = %s", name)
    for rank in (0, 1):
        found = dict(line.split("=", 1) for line in here.whole_log(f"{name}-{rank}").splitlines())
        machine = {variable: found.pop(variable) for variable in ("PATH", "HOME", "LANG", "TMPDIR", "PWD")}
        assert found == environment(rank, job_id, port, **template["env"])
        assert machine.items() >= {"HOME": "/tmp", "TMPDIR": "/tmp", "PWD": "/"}.items()


def test_two_workers_train_by_the_guides_lines(here, small_guide, type_line):
    """Sections 2 to 6 in order. The second machine is slow to start, so that the first one is seen waiting."""
    name = "ddp-resnet50"
    here.submitted.append(name)
    slow = here.stack.processes["agent-gpu-02"]
    slow.send(signal.SIGSTOP)

    type_line(lines.ATTACH, small_guide)
    assert type_line(lines.SUBMIT, small_guide) == f"{name}\n"
    eventually(lambda: here.status(name)["reason"] == "Starting together: 1 of 2 ready", "one is ready")
    starting = type_line(lines.RUNS)
    slow.send(signal.SIGCONT)
    here.wait_running(name)
    running = type_line(lines.RUNS)
    followed = here.astra("logs", "-f", f"{name}-0", seconds=TRAINING_SECONDS)
    here.wait(name, "Succeeded")

    assert starting == (
        lines.HEAD
        + "ddp-resnet50                  main          Starting    Starting together: 1 of 2 ready\n"
    )
    assert running == (
        lines.HEAD + "ddp-resnet50                  main          Running     2 of 2 workers running\n"
    )
    assert here.history(name) == [
        (0, "Pending", "Queued; the next pass is due within seconds"),
        (1, "Starting", "Starting together: 0 of 2 ready"),
        (1, "Starting", "All 2 workers ready: starting"),
        (1, "Running", "2 of 2 workers running"),
        (1, "Succeeded", "2 of 2 workers succeeded"),
    ]
    check_results(here, small_guide, type_line(lines.LOGS), followed)

    shown = here.astra("show", name)

    assert re.search(r"^Network +one InfiniBand fabric$", shown, re.MULTILINE)
    assert re.search(rf"^{name}-1 +Succeeded +gpu-02 +1 +Succeeded on gpu-02$", shown, re.MULTILINE)
    assert type_line(lines.DELETE) == "ddp-resnet50 deleted\n"
    assert type_line(lines.RUNS) == lines.HEAD


def check_results(here, guide, results, followed):
    """Worker 0 tells what was measured, by the guide's line as by following its log; worker 1 only that it is there."""
    port = json.loads((guide / "run.json").read_text())["spec"]["task_template"]["env"]["MASTER_PORT"]
    hello, bandwidth, throughput = results.splitlines()
    assert hello == f"worker 0 of 2 on gpu-01, leader 127.0.0.1:{port}, 1 GPUs"
    assert re.fullmatch(
        r"all_reduce 1 MiB over 2 CPU processes: [\d.]+ ms, bus bandwidth [\d.]+ GB/s", bandwidth
    )
    assert re.fullmatch(r"throughput: [\d.,]+ images/s on 2 CPU processes", throughput)
    assert followed == here.log("ddp-resnet50-0")
    assert set(results.splitlines()) < set(followed.splitlines())
    # What may follow is torchrun's own: it warns when the leader's store is gone before worker 1 has said goodbye.
    greeting, *rest = here.log("ddp-resnet50-1").splitlines()
    assert greeting == f"worker 1 of 2 on gpu-02, leader 127.0.0.1:{port}, 1 GPUs"
    assert not re.search(r"^(worker |all_reduce |throughput: )", "\n".join(rest), re.MULTILINE)
