"""The variables of every worker, read by the software they are for: torchrun, Lightning, Accelerate, submitit.

`tests/wire/frameworks.py` asks the frameworks; torchrun is a real one for each worker. Workers share this host, so
those that meet do so on loopback.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hostlist import expand_hostlist

from tests.wire.shapes import HOSTLISTS, PROCESSES, SHAPES, environments, workers_of
from wire.hostlist import compress

pytestmark = pytest.mark.processes

SECONDS = 120.0
"""What importing torch may take on a busy machine; only a failing test waits so long."""
READER = Path(__file__).with_name("frameworks.py")

SLURM = {
    "SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS",
    "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_JOB_NAME", "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURMD_NODENAME", "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE",
    "SLURM_RESTART_COUNT", "SLURM_LAUNCH_NODE_IPADDR",
}  # fmt: skip
"""All names of Slurm's that a worker gets; SLURM_GPUS_ON_NODE only one with GPUs."""

GANGS = [name for name, shape in SHAPES.items() if not shape.alone]
EVERY = [(name, rank) for name, shape in SHAPES.items() for rank in range(len(shape.machines))]
BY_TORCHRUN = {"two": 2, "independent": 1}
"""Shape → how many of its workers' torchruns are started."""


# --- What the frameworks say ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shapes() -> dict[str, list[dict[str, str]]]:
    return {name: environments(shape) for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def reader() -> Iterator["subprocess.Popen[str]"]:
    """tests.wire.frameworks, which imports while torchruns start and waits for its questions."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, READER], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        yield process
        process.kill()


@pytest.fixture(scope="module")
def torchrun(reader, shapes, tmp_path_factory) -> dict[str, list[dict[str, str]]]:
    """The environments of the processes that bare torchruns start, by rank; all torchruns at the same time."""
    root = tmp_path_factory.mktemp("torchrun")
    running = [
        start_torchrun(environment, root / name)
        for name, count in BY_TORCHRUN.items()
        for environment in shapes[name][:count]
    ]
    for process in running:
        output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, output
    return {
        name: sorted(
            (json.loads(path.read_text()) for path in (root / name).glob("*.json")),
            key=lambda environment: int(environment["RANK"]),
        )
        for name in BY_TORCHRUN
    }


def start_torchrun(environment: Mapping[str, str], directory: Path) -> "subprocess.Popen[str]":
    """`torchrun script.py` with a worker's environment; each of its processes leaves its own as a file."""
    directory.mkdir(exist_ok=True)
    script = directory / "script.py"
    script.write_text(
        "import json, os, pathlib\n"
        "name = '{ASTRAEUS_TASK_NAME}.{RANK}.json'.format_map(os.environ)\n"
        "pathlib.Path(__file__).with_name(name).write_text(json.dumps(dict(os.environ)))\n"
    )
    return subprocess.Popen(
        [Path(sys.executable).with_name("torchrun"), script],
        env={"PATH": os.environ["PATH"], **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def answers(reader, shapes, torchrun) -> Any:
    """Everything that tests.wire.frameworks has been asked: `gangs` and `hostlists`."""
    # A torchrun keeps the store that its processes meet in; these have gone, so rank 0 makes one.
    own_store = {"TORCHELASTIC_USE_AGENT_STORE": "False"}
    gangs = {
        **{
            name: {"environments": found, "devices": 1, "meets": not SHAPES[name].alone}
            for name, found in shapes.items()
        },
        **{
            f"torchrun {name}": {
                "environments": [environment | own_store for environment in found],
                "devices": PROCESSES,
                "meets": True,
            }
            for name, found in torchrun.items()
        },
    }
    questions = {"gangs": gangs, "hostlists": [compress(hosts) for hosts in HOSTLISTS.values()]}
    output, errors = reader.communicate(json.dumps(questions), timeout=SECONDS)
    assert reader.returncode == 0, errors
    found = json.loads(output)
    assert all(all(gang) for gang in found["gangs"].values()), errors
    return found


# --- Slurm's set ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rank"), EVERY)
def test_slurms_set_is_whole_on_every_rank(shapes, name, rank):
    slurm = {key for key in shapes[name][rank] if key.startswith("SLURM")}

    assert slurm == (SLURM if SHAPES[name].gpus else SLURM - {"SLURM_GPUS_ON_NODE"})


@pytest.mark.parametrize("name", SHAPES)
def test_slurms_set_agrees_with_itself_and_with_the_other_ranks(shapes, name):
    shape = SHAPES[name]
    own = {"SLURM_PROCID", "SLURM_NODEID", "SLURMD_NODENAME"}
    lists = {"SLURM_JOB_NODELIST", "SLURM_NODELIST"}
    for rank, environment in enumerate(shapes[name]):
        node, nodes = (0, 1) if shape.alone else (rank, len(shape.machines))
        hosts = [shape.machines[rank]] if shape.alone else list(shape.machines)

        assert {environment[key] for key in ("SLURM_PROCID", "SLURM_NODEID")} == {str(node)}
        assert {environment[f"SLURM_{key}"] for key in ("NNODES", "JOB_NUM_NODES", "NTASKS", "NPROCS")} == {
            str(nodes)
        }
        assert environment["SLURM_TASKS_PER_NODE"] == ("1" if nodes == 1 else f"1(x{nodes})")
        assert environment["SLURMD_NODENAME"] == hosts[node] == environment["ASTRAEUS_NODE_NAME"]
        for key in lists:
            assert expand_hostlist(environment[key]) == hosts
    apart = own | lists if shape.alone else own
    for one, other in pairwise(shapes[name]):
        assert {k: one[k] for k in SLURM & one.keys() - apart} == {
            k: other[k] for k in SLURM & other.keys() - apart
        }


# --- Lightning -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rank"), EVERY)
def test_lightning_finds_slurm_without_torchrun(shapes, answers, name, rank):
    """One process a worker, as `python train.py` starts it; Lightning starts no others."""
    shape, environment = SHAPES[name], shapes[name][rank]
    found = answers["gangs"][name][rank]

    assert found["lightning"] == {
        "kind": "SLURMEnvironment",
        "leader": f"127.0.0.1:{environment['MASTER_PORT']}",
        "world_size": shape.meet,
        "global_rank": 0 if shape.alone else rank,
        "local_rank": 0,
        "node_rank": 0 if shape.alone else rank,
        "starts_processes": False,
    }
    root = shape.machines[rank if shape.alone else 0]
    assert found["job"] == {"job": "ddp", "job_id": 4711, "root": root}


@pytest.mark.parametrize("rank", range(2 * PROCESSES))
def test_lightning_finds_torchelastic_under_torchrun(shapes, answers, rank):
    """Slurm's variables are there as well: torchrun's win."""
    assert answers["gangs"]["torchrun two"][rank]["lightning"] == {
        "kind": "TorchElasticEnvironment",
        "leader": f"127.0.0.1:{shapes['two'][0]['MASTER_PORT']}",
        "world_size": 2 * PROCESSES,
        "global_rank": rank,
        "local_rank": rank % PROCESSES,
        "node_rank": rank // PROCESSES,
        "starts_processes": False,
    }


# --- submitit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rank"), EVERY)
def test_submitit_knows_its_job(shapes, answers, name, rank):
    shape = SHAPES[name]
    node = 0 if shape.alone else rank

    assert answers["gangs"][name][rank]["submitit"] == {
        "kind": "slurm",
        "job_id": "4711",
        "nodes": shape.meet,
        "tasks": shape.meet,
        "node": node,
        "global_rank": node,
        "local_rank": 0,
        "hostnames": [shape.machines[rank]] if shape.alone else list(shape.machines),
        "torch": [node, shape.meet, 0, 1],
        "port": int(shapes[name][rank]["MASTER_PORT"]),
    }


# --- Accelerate ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GANGS)
def test_accelerate_meets_the_other_workers_without_torchrun(answers, name):
    workers = [worker for worker, _, _ in workers_of(SHAPES[name])]
    found = [answer["met"] for answer in answers["gangs"][name]]

    assert found == [
        {
            "kind": "DistributedType.MULTI_CPU" if len(workers) > 1 else "DistributedType.NO",
            "processes": len(workers),
            "index": rank,
            "local_index": 0,
            "main": rank == 0,
            "told": workers,
        }
        for rank in range(len(workers))
    ]


def test_accelerate_meets_all_processes_of_all_torchruns(answers):
    found = [answer["met"] for answer in answers["gangs"]["torchrun two"]]

    assert found == [
        {
            "kind": "DistributedType.MULTI_CPU",
            "processes": 2 * PROCESSES,
            "index": rank,
            "local_index": rank % PROCESSES,
            "main": rank == 0,
            "told": ["ddp-0", "ddp-0", "ddp-1", "ddp-1"],
        }
        for rank in range(2 * PROCESSES)
    ]


def test_accelerate_of_an_independent_worker_meets_its_own_processes_only(answers):
    found = [answer["met"] for answer in answers["gangs"]["torchrun independent"]]

    assert [(each["processes"], each["index"], each["told"]) for each in found] == [
        (PROCESSES, rank, ["ddp-0"] * PROCESSES) for rank in range(PROCESSES)
    ]


@pytest.mark.parametrize(("name", "rank"), EVERY)
def test_accelerate_reads_the_worker_s_part(answers, name, rank):
    """Of an independent worker it is which of how many, for it to take its part of the work."""
    workers = len(SHAPES[name].machines)

    assert answers["gangs"][name][rank]["accelerate"] == {
        "rank": rank,
        "world_size": workers,
        "local_rank": 0,
    }


# --- torchrun ------------------------------------------------------------------------------------------


def test_a_bare_torchrun_on_every_worker_makes_one_world(torchrun):
    told = ("ASTRAEUS_TASK_NAME", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")

    assert [tuple(environment[key] for key in told) for environment in torchrun["two"]] == [
        ("ddp-0", "0", "4", "0", "2", "0"),
        ("ddp-0", "1", "4", "1", "2", "0"),
        ("ddp-1", "2", "4", "0", "2", "1"),
        ("ddp-1", "3", "4", "1", "2", "1"),
    ]


def test_a_bare_torchrun_of_an_independent_worker_waits_for_nobody(torchrun):
    told = ("ASTRAEUS_TASK_NAME", "ASTRAEUS_WORLD_SIZE", "RANK", "WORLD_SIZE")

    assert [tuple(environment[key] for key in told) for environment in torchrun["independent"]] == [
        ("ddp-0", "3", "0", "2"),
        ("ddp-0", "3", "1", "2"),
    ]


def test_torchrun_leaves_all_other_variables_as_they_were(shapes, torchrun):
    per_process = {"RANK", "WORLD_SIZE"}
    for environment in torchrun["two"]:
        before = shapes["two"][int(environment["GROUP_RANK"])]
        kept = before.keys() - per_process

        assert {key: environment[key] for key in kept} == {key: before[key] for key in kept}


# --- Hostlists -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", HOSTLISTS.values(), ids=HOSTLISTS)
def test_every_reader_finds_the_same_hosts_in_the_same_order(answers, hosts):
    text = compress(hosts)

    assert answers["hostlists"][text] == {
        "python-hostlist": list(hosts),
        "submitit": list(hosts),
        "lightning": hosts[0],
    }
