"""`docker inspect` of the worker of the guide's run on a machine of 8 H100 with InfiniBand: every setting of its two
tables. Nodes of devices are stood in for by others of the same kind, GPUs by nothing: the container is not started."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.containers.settings import Container, Limits, cdi_is_configured, container_request
from tests.agent.agents import AgentProcess
from tests.agent.fake_console import FakeConsole
from tests.docker.engine import Engine
from tests.docker.image import IMAGE
from tests.docker.machines import contained, container_of, join_docker
from wire.assignments import Assignment
from wire.environment import WorkerFacts, shm_bytes, worker_environment

pytestmark = pytest.mark.docker
ROOT = Path(__file__).parents[2]
GIB = 1 << 30
NODES = (
    "infiniband/uverbs0",
    "infiniband/uverbs1",
    "infiniband/rdma_cm",
    "nvidia-caps-imex-channels/channel0",
)
PORTS = tuple(f"mlx5_{number}:1" for number in range(8))
GPUS = tuple(f"GPU-a57ae051-0000-4000-8000-00000000000{number}" for number in range(8))


@pytest.fixture
def agent(console: FakeConsole, engine: Engine, tmp_path: Path) -> Iterator[AgentProcess]:
    for node in NODES:
        path = tmp_path / "devices" / "dev" / node
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    simulate, devices = ROOT / "worker_image/demo/gpu-01.json", tmp_path / "devices"
    agent = AgentProcess(console, tmp_path / "state")
    join_docker(agent, engine, simulate=str(simulate), device_root=str(devices), address="10.20.0.11").start()
    yield agent
    agent.clean()


def reference_worker(**more: Any) -> Assignment:
    """Worker 0 of the guide's run.json as the console hands it to gpu-01, with the tests' image."""
    env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "STEPS": "300", "BATCH_PER_GPU": "256"}
    facts = WorkerFacts(
        run="ddp-resnet50",
        worker="ddp-resnet50-0",
        workspace="vision",
        cluster="main",
        attempt=1,
        job_id=7,
        rank=0,
        world_size=2,
        group_name="",
        group_rank=0,
        group_size=2,
        gpu_count=8,
        cpus=96,
        machine="gpu-01",
        hostnames=("gpu-01", "gpu-02"),
        leader_address="10.20.0.11",
        leader_worker="ddp-resnet50-0",
        master_port=29500,
        network="ib_fabric",
        interconnect="infiniband",
        ib_ports=PORTS,
        user_env=env,
    )
    memory = 800 * GIB
    given: dict[str, Any] = {
        "phase": "prepare",
        "env": worker_environment(facts),
        "gpu_uuids": GPUS,
        "rdma": True,
        "cpu_cores": 96,
        "memory_bytes": memory,
        "shm_bytes": shm_bytes(memory),
        "stop_grace_seconds": 30,
    }
    return contained("ref", **(given | more))


def variables_of(found) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in found["Config"]["Env"])


def test_the_guides_worker_has_every_setting_of_the_guide(console, agent, engine) -> None:
    console.want(reference_worker())
    console.wait_state("ref", "ready", seconds=60)
    found = container_of(engine, "ref")
    host, env = found["HostConfig"], variables_of(found)

    # The first table: what every worker gets.
    first = {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "10.20.0.11",
        "MASTER_PORT": "29500",
        "ASTRAEUS_GPU_COUNT": "8",
        "ASTRAEUS_WORLD_SIZE": "2",
        "ASTRAEUS_REPLICA_INDEX": "0",
        "ASTRAEUS_LEADER_ADDRESS": "10.20.0.11",
        "ASTRAEUS_LEADER_TASK_NAME": "ddp-resnet50-0",
        "ASTRAEUS_TASK_NAME": "ddp-resnet50-0",
        "ASTRAEUS_NODE_NAME": "gpu-01",
        "ASTRAEUS_JOB_NAME": "ddp-resnet50",
        "SLURM_PROCID": "0",
        "SLURM_NNODES": "2",
        "SLURM_NTASKS": "2",
        "SLURM_JOB_NAME": "ddp-resnet50",
    }
    assert {name: env.get(name) for name in first} == first

    # The second: what a GPU worker gets. `NCCL_DEBUG` is the run's own; the list is as NCCL parses it.
    assert env["NCCL_DEBUG"] == "INFO"
    assert env["NCCL_ASYNC_ERROR_HANDLING"] == "1"
    assert env["NCCL_SOCKET_IFNAME"] == "^lo,docker,virbr,veth,cni,wg"
    assert env["NCCL_IB_HCA"] == "=" + ",".join(PORTS)
    assert "NCCL_IB_DISABLE" not in env
    devices = {device["PathInContainer"]: device["CgroupPermissions"] for device in host["Devices"]}
    assert devices == dict.fromkeys([f"/dev/{node}" for node in sorted(NODES[:3])], "rwm")
    assert [cap.removeprefix("CAP_") for cap in host["CapAdd"]] == ["IPC_LOCK"]
    assert host["ShmSize"] == 64 * GIB
    assert host["NetworkMode"] == "host"
    [gpus] = host["DeviceRequests"]
    assert (gpus["Driver"], gpus["DeviceIDs"], gpus["Capabilities"]) == ("nvidia", list(GPUS), [["gpu"]])

    assert (host["CpuQuota"], host["CpuPeriod"]) == (96 * 100_000, 100_000)
    assert (host["Memory"], host["MemorySwap"]) == (800 * GIB, 800 * GIB)
    assert (host["Privileged"], host["SecurityOpt"]) == (False, ["no-new-privileges"])
    assert (host["PidsLimit"], host["RestartPolicy"]["Name"]) == (32768, "no")
    assert found["Config"]["Labels"]["io.astraeus.assignment"] == "ref"
    assert (found["Config"]["Image"], found["Config"]["StopSignal"]) == (IMAGE, "SIGTERM")
    assert not any("docker.sock" in json.dumps(mount) for mount in found["Mounts"])


def test_a_worker_with_rdma_devices_runs_and_sees_them_and_no_others(console, agent, engine) -> None:
    script = "ls /dev/infiniband /dev/nvidia-caps-imex-channels; grep CapBnd /proc/self/status"
    job = reference_worker(
        phase="start", gpu_uuids=(), imex=True, args=("-c", script), shm_bytes=1 << 26, memory_bytes=1 << 28
    )
    console.want(job)
    assert console.wait_gone("ref", seconds=60).exit.code == 0
    *listed, capabilities = console.wait_whole_log("ref").splitlines()
    seen = [line for line in listed if line and not line.startswith("/")]
    assert sorted(seen) == ["channel0", "rdma_cm", "uverbs0", "uverbs1"]
    held = int(capabilities.split()[1], 16)
    assert [bool(held >> bit & 1) for bit in (14, 13, 27, 21)] == [True, False, False, False], (
        "IPC_LOCK, and neither NET_RAW nor MKNOD nor SYS_ADMIN"
    )


def request_of(**more: Any) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "assignment": reference_worker(),
        "assignment_id": "ref",
        "agent": "/state",
        "machine": "gpu-01",
        "files": (),
        "drives": (),
        "variables": {},
        "devices": {},
        "gpus": GPUS,
    }
    return container_request(Container(**(wanted | more)))


def test_locked_memory_is_unlimited_where_the_engine_can_give_it() -> None:
    given = {limit["Name"]: limit["Hard"] for limit in request_of()["HostConfig"]["Ulimits"]}
    assert given == {"nofile": 1 << 20, "memlock": -1}
    limits = Limits(memlock=8 << 20, nofile=4096)
    given = {limit["Name"]: limit["Hard"] for limit in request_of(limits=limits)["HostConfig"]["Ulimits"]}
    assert given == {"nofile": 4096}


def test_gpus_come_by_cdi_where_it_is_configured(tmp_path) -> None:
    assert not cdi_is_configured([str(tmp_path)])
    (tmp_path / "nvidia.yaml").write_text("cdiVersion: 0.6.0\nkind: nvidia.com/gpu\n")
    assert cdi_is_configured([str(tmp_path), str(tmp_path / "nosuch")])
    [asked] = request_of(cdi=True)["HostConfig"]["DeviceRequests"]
    assert (asked["Driver"], asked["DeviceIDs"][0]) == ("cdi", f"nvidia.com/gpu={GPUS[0]}")


def test_real_rdma_devices_are_not_given_without_unlimited_locked_memory(console, engine, tmp_path) -> None:
    agent = join_docker(AgentProcess(console, tmp_path / "real"), engine).start()
    try:
        console.want(contained("a1", rdma=True, phase="prepare"))
        said = console.wait_gone("a1", seconds=60).exit.message
        assert said.startswith(
            "The Docker engine of gpu-01 can't give workers unlimited locked memory, which RDMA needs (at most "
        )
    finally:
        agent.clean()
