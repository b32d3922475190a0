"""A placed gang: its rows, what its workers get, and which machines and ports it is given."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from machines.models import Machine
from runs.models import Allocation, Run
from runs.presentation import run_reason
from runs.scheduling.passes import cluster_place
from tests import factories
from tests.support.gangs import CRASH, Gang, back_off_over, placed
from wire.agent_messages import Exit

pytestmark = pytest.mark.django_db
GIB = factories.GIB


def submitted(house, name="ddp-resnet50", **options) -> Gang:
    return Gang(factories.run_pending(house, name, document=factories.document_make(name, **options)))


def look(gang: Gang) -> tuple[str, str]:
    run = gang.fresh
    return run.state, run_reason(run)


def test_the_reference_s_run_on_two_machines(gang, machines):
    attempt = gang.members[0].attempt
    assert (attempt.number, attempt.network, attempt.fabric) == (1, "ib_rack", "ib-a")
    assert attempt.shape == [{"machines": 2, "gpus": 8}]
    assert (attempt.leader_address, attempt.master_port) == ("10.20.0.11", 29500)
    assert [member.machine.name for member in gang.members] == ["gpu-01", "gpu-02"]
    assert [member.revision for member in gang.members] == [2, 2]

    rows = Allocation.objects.filter(assignment=gang.members[0])
    assert sorted(rows.exclude(gpu=None).values_list("gpu__index", flat=True)) == list(range(8))
    rest = rows.get(gpu=None)
    assert (rest.cpu_cores, rest.memory_bytes, rest.port) == (96, 800 * GIB, 29500)
    assert Allocation.objects.get(assignment=gang.members[1], gpu=None).port is None
    for machine in machines:
        old = (machine.version, machine.desired_revision)
        machine.refresh_from_db()
        assert (machine.version, machine.desired_revision) == (old[0] + 1, old[1] + 1)


def test_what_both_workers_get(gang):
    ports = ",".join(f"mlx5_{index}:1" for index in range(8))
    shared = {
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
        "ASTRAEUS_NETWORK": "ib_rack",
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
        "SLURM_JOB_ID": str(gang.run.id),
        "SLURM_JOB_NODELIST": "gpu-[01-02]",
        "SLURM_NODELIST": "gpu-[01-02]",
        "SLURM_CPUS_ON_NODE": "96",
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_RESTART_COUNT": "0",
        "SLURM_LAUNCH_NODE_IPADDR": "10.20.0.11",
        "NCCL_DEBUG": "INFO",
        "NCCL_ASYNC_ERROR_HANDLING": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "NCCL_SOCKET_IFNAME": "^lo,docker,virbr,veth,cni,wg",
        "NCCL_IB_HCA": f"={ports}",
    }
    for rank, member in enumerate(gang.members):
        own = {
            "RANK": str(rank),
            "ASTRAEUS_REPLICA_INDEX": str(rank),
            "ASTRAEUS_GROUP_RANK": str(rank),
            "ASTRAEUS_TASK_NAME": f"ddp-resnet50-{rank}",
            "ASTRAEUS_NODE_NAME": f"gpu-0{rank + 1}",
            "PET_NODE_RANK": str(rank),
            "SLURM_PROCID": str(rank),
            "SLURM_NODEID": str(rank),
            "SLURMD_NODENAME": f"gpu-0{rank + 1}",
        }
        assert member.launch["env"] == {**shared, **own}
        rest = {key: value for key, value in member.launch.items() if key not in {"env", "preflight"}}
        assert rest == {
            "run": "ddp-resnet50",
            "worker": f"ddp-resnet50-{rank}",
            "attempt": 1,
            "rank": rank,
            "gang": True,
            "address": f"10.20.0.{11 + rank}",
            "on_mesh": False,
            "image": "nvcr.io/nvidia/pytorch:24.08-py3",
            "command": "bash",
            "args": ["-c", "exec torchrun /app/train_ddp.py"],
            "working_dir": None,
            "user": None,
            "gpu_uuids": [f"GPU-gpu-0{rank + 1}-{index}" for index in range(8)],
            "rdma": True,
            "imex": False,
            "cpu_cores": 96,
            "memory_bytes": 800 * GIB,
            "shm_bytes": 64 * GIB,
            "rendezvous_port": 29500 if rank == 0 else None,
            "stop_signal": "SIGTERM",
            "stop_grace_seconds": 30,
            "time_limit_seconds": None,
            "stop_when_cut_off_seconds": None,
            "warn_signal_seconds": None,
            "hang_after_seconds": None,
            "probes": {},
            "mounts": [],
            "network_mounts": [],
            "secrets": [],
        }


# --- Ports --------------------------------------------------------------------------------------


def with_port(document: dict[str, Any], port: str) -> dict[str, Any]:
    document["spec"]["task_template"]["env"]["MASTER_PORT"] = port
    return document


def small(name: str) -> dict[str, Any]:
    return factories.document_make(name, gpus=2, machines=1)


def test_leaders_of_one_machine_get_ports_of_their_own(house):
    factories.machine_make(house, "gpu-01")
    Machine.objects.update(busy_ports=[29501])
    gangs = [Gang(factories.run_pending(house, name, document=small(name))) for name in ("a", "b")]
    cluster_place(house.cluster.id)

    ports = [gang.members[0].launch["env"]["MASTER_PORT"] for gang in gangs]
    assert ports == ["29500", "29502"], "29501 is in use by something that is not ours"


def test_the_run_s_own_port_is_taken_as_it_is(house, machines):
    run = factories.run_pending(house, "a", document=with_port(small("a"), "31000"))
    cluster_place(house.cluster.id)
    [member] = Gang(run).members

    assert member.attempt.master_port == 31000
    assert member.launch["env"]["MASTER_PORT"] == "31000"
    assert member.launch["rendezvous_port"] == 31000


def test_a_port_that_another_run_holds_is_waited_for_and_said(house):
    factories.machine_make(house, "gpu-01")
    first = Gang(factories.run_pending(house, "a", document=with_port(small("a"), "31000")))
    second = Gang(factories.run_pending(house, "b", document=with_port(small("b"), "31000")))
    cluster_place(house.cluster.id)
    assert first.fresh.state == "Starting"
    held = "Port 31000 on gpu-01 is held by another run; waiting for it."
    assert look(second) == ("Pending", f"{held} Take MASTER_PORT out of `env` to be given a free one.")

    first.end(0, Exit(kind="stopped"))
    cluster_place(house.cluster.id)
    assert second.fresh.state == "Starting"


def test_a_machine_without_a_port_left(house):
    factories.machine_make(house, "gpu-01")
    Machine.objects.update(busy_ports=list(range(29500, 29600)))
    gang = Gang(factories.run_pending(house, "a", document=small("a")))
    cluster_place(house.cluster.id)

    assert look(gang) == ("Pending", "All rendezvous ports on gpu-01 are in use; waiting for one")


# --- Runs that come again ------------------------------------------------------------------------


def test_a_machine_on_which_an_attempt_failed_is_used_last(house):
    for number in (1, 2, 3):
        factories.machine_make(house, f"gpu-0{number}")
    gang = placed(house).start()
    assert [member.machine.name for member in gang.members] == ["gpu-01", "gpu-02"]
    gang.end(0, CRASH)
    gang.advance()
    gang.end(1, Exit(kind="stopped"))
    gang.advance()
    back_off_over(gang)
    cluster_place(house.cluster.id)
    assert [member.machine.name for member in gang.members] == ["gpu-02", "gpu-03"]


def test_but_it_is_used_when_there_is_no_other(house, machines):
    gang = submitted(house)
    Run.objects.update(avoid_machines={str(machines[0].id): time.time() + 1000})
    cluster_place(house.cluster.id)

    assert gang.fresh.state == "Starting"


def test_a_run_that_failed_goes_before_new_ones_of_its_priority(house, machines):
    new = submitted(house, "new")
    again = submitted(house, "again")
    Run.objects.filter(id=again.run.id).update(restarts=1)
    cluster_place(house.cluster.id)

    assert (again.fresh.state, new.fresh.state) == ("Starting", "Pending")


def test_patience_waits_for_a_better_network_and_no_longer(house):
    """Free now: one machine in each of two racks; once run `other` ends, two in one rack."""
    for name, rack in (("gpu-01", "r1"), ("gpu-02", "r1"), ("gpu-03", "r2")):
        factories.machine_make(house, name, rack=rack)
    other = factories.document_make("other", gpus=8, machines=1)
    selection = {"mode": "Machines", "machines": ["gpu-01"]}
    other["spec"]["task_template"]["requested_resources"]["node_selection"] = selection
    factories.run_pending(house, "other", document=other)
    cluster_place(house.cluster.id)
    document = factories.document_make("patient")
    topology = document["spec"]["task_template"]["requested_resources"]["topology"]
    topology["patience_seconds"] = 600
    gang = Gang(factories.run_pending(house, "patient", document=document))
    cluster_place(house.cluster.id)
    state, reason = look(gang)
    assert state == "Pending"
    assert reason == (
        "One InfiniBand fabric is free now; waiting up to 10 min for one rack on one InfiniBand fabric"
    )

    Run.objects.filter(id=gang.run.id).update(patient_since=timezone.now() - timedelta(seconds=601))
    cluster_place(house.cluster.id)
    assert gang.fresh.state == "Starting"
