"""The variables of every worker, as scripts, torchrun, NCCL and programs written for Slurm read them."""

import re
from dataclasses import replace

import pytest
from hostlist import expand_hostlist

from wire.environment import (
    WorkerFacts,
    needs_imex,
    needs_rdma_devices,
    shm_bytes,
    wanted_master_port,
    worker_environment,
)
from wire.quantities import GIB

USER_ENV = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "STEPS": "300", "BATCH_PER_GPU": "256"}


def reference_worker(rank: int) -> WorkerFacts:
    """Worker `rank` of the reference's run: two machines with eight GPUs each on one InfiniBand fabric."""
    return WorkerFacts(
        run="ddp-resnet50",
        worker=f"ddp-resnet50-{rank}",
        workspace="vision",
        cluster="main",
        attempt=1,
        job_id=4711,
        rank=rank,
        world_size=2,
        group_name="",
        group_rank=rank,
        group_size=2,
        gpu_count=8,
        cpus=96,
        machine=("gpu-01", "gpu-02")[rank],
        hostnames=("gpu-01", "gpu-02"),
        leader_address="10.20.0.11",
        leader_worker="ddp-resnet50-0",
        master_port=29500,
        network="ib_fabric",
        interconnect="infiniband",
        ib_ports=("mlx5_0:1", "mlx5_1:1"),
        user_env=USER_ENV,
    )


def worker_alone(index: int, **env: str) -> WorkerFacts:
    """One of two workers that start on their own."""
    machine = ("gpu-01", "gpu-02")[index]
    return replace(
        reference_worker(index),
        hostnames=(machine,),
        leader_address=("10.20.0.11", "10.20.0.12")[index],
        leader_worker=f"ddp-resnet50-{index}",
        network="one_machine",
        user_env=env,
        alone=True,
    )


EVERY_WORKER = {
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "10.20.0.11",
    "MASTER_PORT": "29500",
    "ASTRAEUS_GPU_COUNT": "8",
    "ASTRAEUS_WORLD_SIZE": "2",
    "ASTRAEUS_LEADER_ADDRESS": "10.20.0.11",
    "ASTRAEUS_LEADER_TASK_NAME": "ddp-resnet50-0",
    "ASTRAEUS_JOB_NAME": "ddp-resnet50",
    "ASTRAEUS_WORKSPACE": "vision",
    "ASTRAEUS_CLUSTER": "main",
    "ASTRAEUS_ATTEMPT": "1",
    "ASTRAEUS_NETWORK": "ib_fabric",
    "ASTRAEUS_GROUP_NAME": "",
    "ASTRAEUS_GROUP_SIZE": "2",
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "8",
    "PET_MASTER_ADDR": "10.20.0.11",
    "PET_MASTER_PORT": "29500",
    "SLURM_LOCALID": "0",
    "SLURM_NNODES": "2",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NTASKS": "2",
    "SLURM_NPROCS": "2",
    "SLURM_NTASKS_PER_NODE": "1",
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "SLURM_JOB_NAME": "ddp-resnet50",
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NODELIST": "gpu-[01-02]",
    "SLURM_NODELIST": "gpu-[01-02]",
    "SLURM_CPUS_ON_NODE": "96",
    "SLURM_GPUS_ON_NODE": "8",
    "SLURM_RESTART_COUNT": "0",
    "SLURM_LAUNCH_NODE_IPADDR": "10.20.0.11",
    "NCCL_ASYNC_ERROR_HANDLING": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "NCCL_SOCKET_IFNAME": "^lo,docker,virbr,veth,cni,wg",
    "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
    **USER_ENV,
}


@pytest.mark.parametrize(("rank", "machine"), [(0, "gpu-01"), (1, "gpu-02")])
def test_the_whole_table_of_the_reference(rank, machine):
    own = {
        "RANK": str(rank),
        "ASTRAEUS_REPLICA_INDEX": str(rank),
        "ASTRAEUS_TASK_NAME": f"ddp-resnet50-{rank}",
        "ASTRAEUS_NODE_NAME": machine,
        "ASTRAEUS_GROUP_RANK": str(rank),
        "PET_NODE_RANK": str(rank),
        "SLURM_PROCID": str(rank),
        "SLURM_NODEID": str(rank),
        "SLURMD_NODENAME": machine,
    }

    assert worker_environment(reference_worker(rank)) == EVERY_WORKER | own


def test_the_first_of_two_ways_to_ask_for_a_default():
    env = worker_environment(replace(reference_worker(0), user_env={}))

    assert env["NCCL_DEBUG"] == "WARN"


@pytest.mark.parametrize(
    ("user_env", "expected"),
    [
        ({"MASTER_PORT": "29600"}, {"MASTER_PORT": "29600", "PET_MASTER_PORT": "29600"}),
        (
            {"MASTER_ADDR": "ddp-resnet50"},
            {
                "MASTER_ADDR": "ddp-resnet50",
                "PET_MASTER_ADDR": "ddp-resnet50",
                "ASTRAEUS_LEADER_ADDRESS": "ddp-resnet50",
                "SLURM_LAUNCH_NODE_IPADDR": "10.20.0.11",
            },
        ),
        (
            {"MASTER_PORT": "29600", "PET_MASTER_PORT": "29700"},
            {"MASTER_PORT": "29600", "PET_MASTER_PORT": "29700"},
        ),
        ({"PET_MASTER_PORT": "29700"}, {"MASTER_PORT": "29500", "PET_MASTER_PORT": "29700"}),
        (
            {"WORLD_SIZE": "16"},
            {"WORLD_SIZE": "16", "ASTRAEUS_WORLD_SIZE": "16", "PET_NNODES": "16", "SLURM_NNODES": "2"},
        ),
        ({"RANK": "5"}, {"ASTRAEUS_REPLICA_INDEX": "5", "PET_NODE_RANK": "5", "SLURM_PROCID": "0"}),
        ({"ASTRAEUS_GPU_COUNT": "4"}, {"ASTRAEUS_GPU_COUNT": "4", "PET_NPROC_PER_NODE": "4"}),
        ({"NCCL_ASYNC_ERROR_HANDLING": "0"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    ],
)
def test_the_user_wins_and_what_says_the_same_follows(user_env, expected):
    env = worker_environment(replace(reference_worker(0), user_env=user_env))

    assert {name: env[name] for name in expected} == expected


def test_following_brings_nothing_that_the_worker_would_not_have():
    facts = replace(reference_worker(0), gpu_count=0, user_env={"NCCL_ASYNC_ERROR_HANDLING": "0"})

    assert "TORCH_NCCL_ASYNC_ERROR_HANDLING" not in worker_environment(facts)


def test_a_worker_without_gpus_has_no_gpu_settings_and_one_process():
    env = worker_environment(
        replace(reference_worker(0), gpu_count=0, network="ethernet", interconnect="any", user_env={})
    )

    assert env["ASTRAEUS_GPU_COUNT"] == "0"
    assert env["PET_NPROC_PER_NODE"] == "1"
    assert "SLURM_GPUS_ON_NODE" not in env
    assert {name for name in env if "NCCL" in name} == {"NCCL_IB_DISABLE"}


@pytest.mark.parametrize(
    ("network", "asked", "hca", "disabled"),
    [
        ("one_machine", "any", False, False),
        ("one_machine", "infiniband", True, False),
        ("one_machine", "rdma", True, False),
        ("one_machine", "ethernet", False, True),
        ("nvlink_domain", "any", False, False),
        ("ib_rack", "any", True, False),
        ("ib_fabric", "any", True, False),
        ("roce_rack", "rdma", True, False),
        ("roce", "any", True, False),
        ("ethernet", "any", False, True),
    ],
)
def test_network_settings_follow_the_verdict_and_what_was_asked(network, asked, hca, disabled):
    env = worker_environment(replace(reference_worker(0), network=network, interconnect=asked))

    assert ("NCCL_IB_HCA" in env) is hca is needs_rdma_devices(network, asked)
    assert (env.get("NCCL_IB_DISABLE") == "1") is disabled


def test_no_port_means_no_list_of_ports():
    # "=" alone would tell NCCL to use no port at all.
    assert "NCCL_IB_HCA" not in worker_environment(replace(reference_worker(0), ib_ports=()))


@pytest.mark.parametrize("size", [1, 2, 3, 16])
def test_slurms_set_is_complete_and_agrees_with_itself_on_every_rank(size):
    hosts = tuple(f"node{number}" for number in range(9, 9 + size))
    names = None
    for rank in range(size):
        env = worker_environment(
            replace(
                reference_worker(0),
                rank=rank,
                world_size=size,
                machine=hosts[rank],
                hostnames=hosts,
                group_size=size,
            )
        )
        slurm = {name: value for name, value in env.items() if name.startswith("SLURM")}
        names = names or slurm.keys()

        assert slurm.keys() == names
        assert expand_hostlist(slurm["SLURM_JOB_NODELIST"]) == list(hosts)
        assert (
            expand_hostlist(slurm["SLURM_NODELIST"])[int(slurm["SLURM_NODEID"])] == slurm["SLURMD_NODENAME"]
        )
        assert {slurm[f"SLURM_{name}"] for name in ("NNODES", "JOB_NUM_NODES", "NTASKS", "NPROCS")} == {
            str(size)
        }
        assert re.fullmatch(r"1" if size == 1 else rf"1\(x{size}\)", slurm["SLURM_TASKS_PER_NODE"])
        assert slurm["SLURM_JOB_ID"].isdecimal()


def test_impossible_facts_are_refused():
    with pytest.raises(ValueError, match="rank 2 of 2 workers on 2 machines is impossible"):
        replace(reference_worker(0), rank=2)
    with pytest.raises(ValueError, match="rank 0 of 2 workers on 1 machines is impossible"):
        replace(reference_worker(0), hostnames=("gpu-01",))


@pytest.mark.parametrize(
    ("env", "port"), [({"MASTER_PORT": "29600"}, 29600), ({}, None), ({"MASTER_PORT": "x"}, None)]
)
def test_the_port_that_the_user_wants(env, port):
    assert wanted_master_port(env) == port


@pytest.mark.parametrize(
    ("memory", "shm"),
    [(800 * GIB, 64 * GIB), (100 * GIB, 50 * GIB), (2 * GIB, GIB), (GIB, GIB), (128 * GIB, 64 * GIB)],
)
def test_shared_memory_is_half_within_bounds(memory, shm):
    assert shm_bytes(memory) == shm


def test_imex_is_for_one_nvlink_domain_over_several_machines():
    assert needs_imex("nvlink_domain", None, 2)
    assert needs_imex("nvlink_domain", "nvlink_domain", 2)
    assert needs_imex("ib_rack", "nvlink_domain", 2)
    assert not needs_imex("nvlink_domain", None, 1)
    assert not needs_imex("one_machine", "nvlink_domain", 1)
    assert not needs_imex("ib_fabric", "fabric", 2)


def test_a_worker_that_starts_on_its_own_knows_its_part_and_meets_nobody():
    env = worker_environment(worker_alone(1))
    part = {"RANK": "1", "WORLD_SIZE": "2", "ASTRAEUS_REPLICA_INDEX": "1", "ASTRAEUS_WORLD_SIZE": "2"}
    meets = {
        "MASTER_ADDR": "10.20.0.12",
        "PET_NNODES": "1",
        "PET_NODE_RANK": "0",
        "PET_MASTER_ADDR": "10.20.0.12",
    }
    slurm = {
        "SLURM_PROCID": "0",
        "SLURM_NODEID": "0",
        "SLURM_NNODES": "1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NTASKS": "1",
        "SLURM_NPROCS": "1",
        "SLURM_TASKS_PER_NODE": "1",
        "SLURM_JOB_NODELIST": "gpu-02",
        "SLURM_NODELIST": "gpu-02",
        "SLURMD_NODENAME": "gpu-02",
        "SLURM_LAUNCH_NODE_IPADDR": "10.20.0.12",
    }
    wanted = part | meets | slurm
    assert {name: env[name] for name in wanted} == wanted
    in_a_gang = worker_environment(replace(reference_worker(1), user_env={}))
    assert env.keys() == in_a_gang.keys(), "the set is whole"


def test_what_torchrun_reads_follows_no_index_of_a_worker_that_starts_on_its_own():
    env = worker_environment(worker_alone(1, RANK="7", WORLD_SIZE="9"))
    assert (env["ASTRAEUS_REPLICA_INDEX"], env["ASTRAEUS_WORLD_SIZE"]) == ("7", "9")
    assert (env["PET_NODE_RANK"], env["PET_NNODES"]) == ("0", "1")


def test_only_a_worker_that_starts_on_its_own_may_be_one_of_several_on_one_machine():
    with pytest.raises(ValueError, match="rank 1 of 2 workers on 1 machines"):
        replace(worker_alone(1), alone=False)
