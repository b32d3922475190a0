"""The scheduling pass over real rows: what it sees, what it writes, and when it writes nothing."""

import threading
import time
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from common import nudge
from machines.models import Cluster, Fabric, Gpu, Machine, MachineLabel, Pool, RdmaPort
from machines.services import machine_cordon, machine_label_set
from machines.states import FABRIC_LABEL, NVLINK_DOMAIN_LABEL, RACK_LABEL
from placement import MachineState
from runs.explanations import explanation_of
from runs.models import Allocation, Assignment, Run
from runs.presentation import run_reason
from runs.scheduling import apply, passes
from runs.scheduling.passes import cluster_lock, cluster_pass, cluster_place, clusters_sweep
from runs.scheduling.snapshot import cluster_load
from tests import factories
from tests.support.gangs import CRASH, Gang, back_off_over, placed
from wire.agent_messages import Exit

pytestmark = pytest.mark.django_db
GIB = factories.GIB


@pytest.fixture
def ana(house):
    return factories.actor_of(house.ana)


def facts(house):
    """What placement sees, machine by machine."""
    snapshot = cluster_load(house.cluster).snapshot
    return {name: number for number, name in enumerate(snapshot.names)}, snapshot


def submitted(house, name="ddp-resnet50", **options) -> Gang:
    return Gang(factories.run_pending(house, name, document=factories.document_make(name, **options)))


def look(gang: Gang) -> tuple[str, str]:
    run = gang.fresh
    return run.state, run_reason(run)


# --- What a pass sees --------------------------------------------------------------------------------


def seen(house) -> dict[str, dict]:
    """The facts of each machine as `build_snapshot` gets them."""
    from runs.scheduling import snapshot

    rows = snapshot._rows_load(house.cluster)
    machines = Machine.objects.select_related("pool")
    return {machine.name: snapshot._machine(machine, rows) for machine in machines}


def test_a_machine_as_placement_sees_it(house, machines):
    found = seen(house)["gpu-01"]

    assert (found.pool, found.state, found.rack, found.nvlink_domain) == (
        "h100",
        MachineState.READY,
        "r1",
        None,
    )
    assert (found.cpu_millicores, found.cpu_free_millicores) == (96_000, 96_000)
    assert (found.memory_bytes, found.memory_free_bytes) == (1024 * GIB, 1024 * GIB)
    assert [(gpu.index, gpu.model, gpu.held, gpu.suspect) for gpu in found.gpus] == [
        (index, "H100", False, False) for index in range(8)
    ]
    assert {(port.link, port.up, port.gbps, port.fabric) for port in found.ports} == {
        ("infiniband", True, 400, "ib-a")
    }
    assert [port.name for port in found.ports][:2] == ["mlx5_0:1", "mlx5_1:1"]


def test_what_a_person_set_wins_over_what_was_found(house, machines, ana):
    machine_label_set(machine=machines[0], key=RACK_LABEL, value="r9", actor=ana)
    machine_label_set(machine=machines[0], key=FABRIC_LABEL, value="blue", actor=ana)
    machine_label_set(machine=machines[0], key=NVLINK_DOMAIN_LABEL, value="nv-1", actor=ana)
    found = seen(house)

    assert (found["gpu-01"].rack, found["gpu-02"].rack) == ("r9", "r1")
    assert {port.fabric for port in found["gpu-01"].ports} == {"blue"}
    assert {port.fabric for port in found["gpu-02"].ports} == {"ib-a"}
    assert found["gpu-01"].nvlink_domain == "nv-1"


def test_the_fabric_label_names_infiniband_ports_only(house, machines, ana):
    RdmaPort.objects.filter(machine=machines[0], device="mlx5_7").update(link_layer="Ethernet", fabric=None)
    machine_label_set(machine=machines[0], key=FABRIC_LABEL, value="blue", actor=ana)
    ports = {port.name: port for port in seen(house)["gpu-01"].ports}

    assert (ports["mlx5_7:1"].link, ports["mlx5_7:1"].fabric) == ("ethernet", None)
    assert ports["mlx5_0:1"].fabric == "blue"


def test_held_suspect_faulty_and_absent_gpus(house, machines, gang):
    gpu = Gpu.objects.get(machine=machines[0], index=0)
    Allocation.objects.filter(gpu=gpu).update(released_at=timezone.now())
    Gpu.objects.filter(machine=machines[0], index=1).update(health="suspect")
    Gpu.objects.filter(machine=machines[0], index=2).update(health="faulty")
    Gpu.objects.filter(machine=machines[0], index=3).update(present=False)
    found = {each.index: each for each in seen(house)["gpu-01"].gpus}

    assert [found[0].held, found[1].held] == [False, True]
    assert (found[1].suspect, found[2].faulty) == (True, True)
    assert 3 not in found
    assert seen(house)["gpu-01"].cpu_free_millicores == 0
    assert seen(house)["gpu-01"].memory_free_bytes == 224 * GIB


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("cordoned_at", MachineState.READY | MachineState.CORDONED),
        ("draining_at", MachineState.READY | MachineState.DRAINING),
        ("unreachable_at", MachineState.UNREACHABLE),
        ("quarantined_at", MachineState.QUARANTINED),
    ],
)
def test_the_state_of_a_machine(house, machines, field, expected):
    Machine.objects.filter(id=machines[0].id).update(**{field: timezone.now()})

    assert seen(house)["gpu-01"].state == expected


def test_nvlink_domains_are_found_by_the_gpus(house, machines):
    Gpu.objects.filter(machine=machines[0]).update(nvlink_domain="uuid/1")
    Gpu.objects.filter(machine=machines[1], index=0).update(nvlink_domain="uuid/1")
    Gpu.objects.filter(machine=machines[1], index=1).update(nvlink_domain="uuid/2")

    assert seen(house)["gpu-01"].nvlink_domain == "uuid/1"
    assert seen(house)["gpu-02"].nvlink_domain is None, "two domains on one machine are none"


def test_loading_takes_the_same_queries_whatever_the_size(house, machines, django_assert_num_queries):
    with django_assert_num_queries(8):
        cluster_load(house.cluster)
    factories.machine_make(house, "gpu-03")
    with django_assert_num_queries(8):
        cluster_load(house.cluster)


# --- What a pass places ------------------------------------------------------------------------------


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
        rest = {key: value for key, value in member.launch.items() if key != "env"}
        assert rest == {
            "run": "ddp-resnet50",
            "worker": f"ddp-resnet50-{rank}",
            "attempt": 1,
            "rank": rank,
            "gang": True,
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
        }


def test_runs_are_placed_in_order_of_priority_and_time(house, machines):
    first = submitted(house, "first")
    second = submitted(house, "second")
    urgent = submitted(house, "urgent", priority=10)
    cluster_place(house.cluster.id)

    assert [gang.fresh.state for gang in (urgent, first, second)] == ["Starting", "Pending", "Pending"]
    assert look(first)[1].endswith("fabric ib-a has 0.")


def test_two_runs_of_one_pass_share_no_gpu(house, machines):
    gangs = [submitted(house, f"run-{number}", gpus=8) for number in range(3)]
    cluster_place(house.cluster.id)

    assert [gang.fresh.state for gang in gangs] == ["Starting", "Starting", "Pending"]
    assert Allocation.objects.filter(released_at=None, gpu__isnull=False).count() == 16


# --- What a pass refuses -----------------------------------------------------------------------------


def test_a_cordoned_machine_is_named_with_its_reason(house, machines, ana):
    machine_cordon(machine=machines[1], actor=ana, reason="new cable")
    gang = submitted(house)
    cluster_place(house.cluster.id)

    assert look(gang) == (
        "Pending",
        "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01).",
    )
    run = Run.objects.get(id=gang.run.id)
    rows = {row["machines"][0]: row["text"] for row in explanation_of(run)["machines"]}
    assert rows == {"gpu-01": "8 of 8 GPUs free", "gpu-02": "Cordoned; 8 of 8 GPUs free"}
    assert Assignment.objects.count() == 0


def test_the_same_refusal_again_writes_its_age_only(house, machines, ana):
    machine_cordon(machine=machines[1], actor=ana)
    gang = submitted(house)
    cluster_pass(house.cluster.id)
    first = gang.fresh
    cluster_pass(house.cluster.id)

    assert gang.fresh.explained_pass == first.explained_pass + 1
    assert gang.fresh.explanation == first.explanation


def test_who_holds_what_is_missing_is_named_in_the_own_workspace_only(house, machines):
    other = factories.Workspace.objects.create(organization=house.organization, slug="audio", name="Audio")
    factories.WorkspacePool.objects.create(workspace=other, pool=house.pool)
    placed(house, "mine")
    waiting = submitted(house, "waits")
    cluster_place(house.cluster.id)
    [row] = explanation_of(waiting.fresh)["machines"]
    assert row["text"].endswith("0 of 8 GPUs free, 8 needed; 8 held by mine")

    Run.objects.filter(name="mine").update(workspace=other)
    [row] = explanation_of(waiting.fresh)["machines"]
    assert row["text"].endswith("0 of 8 GPUs free, 8 needed; 8 held by another workspace")


def test_a_pool_that_the_workspace_may_not_use(house, machines):
    closed = Pool.objects.create(cluster=house.cluster, slug="closed", name="Closed")
    Machine.objects.filter(id=machines[1].id).update(pool=closed)
    gang = submitted(house)
    cluster_place(house.cluster.id)

    assert gang.fresh.state == "Pending"
    texts = [row["text"] for row in explanation_of(gang.fresh)["machines"]]
    assert any(text.startswith("In pool closed, which this workspace may not use") for text in texts)


def test_a_cluster_without_machines(house):
    gang = submitted(house)
    cluster_place(house.cluster.id)

    assert look(gang) == ("Pending", "This cluster has no machines.")


def test_a_storage_fabric_is_out_of_placement(house, machines):
    Fabric.objects.update(storage=True)
    gang = submitted(house)
    cluster_place(house.cluster.id)

    assert gang.fresh.state == "Pending"


def test_a_run_that_can_t_be_judged_is_set_aside_and_the_others_go_on(house, machines):
    broken = submitted(house, "broken")
    fine = submitted(house, "fine")
    Run.objects.filter(id=broken.run.id).update(document={"metadata": {"name": "broken"}})
    cluster_place(house.cluster.id)

    assert fine.fresh.state == "Starting"
    assert look(broken) == (
        "Pending",
        "The last pass could not judge this run; administrators see why. Other runs are not affected.",
    )
    assert broken.fresh.set_aside.startswith("SpecErrors: ")
    Run.objects.filter(id=broken.run.id).update(document=broken.run.document)
    cluster_place(house.cluster.id)
    assert broken.fresh.set_aside == ""
    assert "are needed" in look(broken)[1]


# --- Between load and apply --------------------------------------------------------------------------


def between_load_and_apply(monkeypatch, change) -> None:
    """Has `change` happen once, after a pass has decided and before it writes."""
    original, done = passes.placement_apply, []

    def changed(*arguments):
        if not done:
            done.append(change())
        return original(*arguments)

    monkeypatch.setattr(passes, "placement_apply", changed)


def test_a_machine_that_changed_meanwhile_stops_the_whole_gang(house, machines, monkeypatch):
    gang = submitted(house)
    between_load_and_apply(
        monkeypatch, lambda: Machine.objects.filter(id=machines[1].id).update(version=F("version") + 1)
    )
    cluster_pass(house.cluster.id)
    assert (gang.fresh.state, gang.fresh.attempt_no) == ("Pending", 0)
    assert (Assignment.objects.count(), Allocation.objects.count()) == (0, 0)
    assert gang.worker_states() == ["Pending", "Pending"]

    cluster_pass(house.cluster.id)
    assert gang.fresh.state == "Starting"


def test_a_run_stopped_meanwhile_is_not_placed(house, machines, monkeypatch):
    gang = submitted(house)
    between_load_and_apply(monkeypatch, lambda: Run.objects.update(wanted="stop"))
    cluster_pass(house.cluster.id)

    assert gang.fresh.state == "Pending"
    assert Assignment.objects.count() == 0


def test_a_pass_that_a_newer_one_overtook_writes_nothing(house, machines, monkeypatch):
    gang = submitted(house)
    between_load_and_apply(monkeypatch, lambda: Cluster.objects.update(pass_no=F("pass_no") + 1))
    cluster_pass(house.cluster.id)

    assert gang.fresh.state == "Pending"


@pytest.mark.django_db(transaction=True)
def test_of_two_passes_at_once_one_gets_the_lock_and_nothing_is_missed(house, empty_redis):
    """The second returns at once; what it was called for is seen by the first when it is through."""
    for name in ("gpu-01", "gpu-02"):
        factories.machine_make(house, name)
    empty_redis.delete(passes._dirty_key(house.cluster.id))
    started, go_on = threading.Event(), threading.Event()
    original = passes.cluster_pass

    def slow(cluster_id):
        original(cluster_id)
        started.set()
        assert go_on.wait(timeout=10)

    def first():
        try:
            passes.cluster_place(house.cluster.id)
        finally:
            connection.close()

    passes.cluster_pass = slow
    try:
        thread = threading.Thread(target=first)
        thread.start()
        assert started.wait(timeout=10)
        gang = submitted(house)  # after the first has looked
        passes.cluster_place(house.cluster.id)
        assert gang.fresh.state == "Pending", "the second pass did not get the lock"
        with cluster_lock(house.cluster.id) as mine:
            assert not mine
        go_on.set()
        thread.join(timeout=20)
    finally:
        passes.cluster_pass = original
    assert gang.fresh.state == "Starting", "the first looked again"
    with cluster_lock(house.cluster.id) as mine:
        assert mine, "the lock ends with the pass"


def test_the_sweep_queues_a_pass_for_clusters_with_waiting_runs(house, machines, empty_redis):
    clusters_sweep()
    assert empty_redis.llen("place") == 0
    submitted(house)
    clusters_sweep()
    assert empty_redis.llen("place") == 1


def test_without_redis_a_pass_runs_all_the_same(house, machines, monkeypatch):
    monkeypatch.setattr(passes, "client", lambda: nudge.connect("redis://127.0.0.1:1/0"))
    gang = submitted(house)
    begun = time.monotonic()
    cluster_place(house.cluster.id)

    assert gang.fresh.state == "Starting"
    assert time.monotonic() - begun < 2, "nobody waits for a Redis that is away"


# --- Ports -------------------------------------------------------------------------------------------


def with_port(document: dict, port: str) -> dict:
    document["spec"]["task_template"]["env"]["MASTER_PORT"] = port
    return document


def small(name: str) -> dict:
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
    assert look(second) == (
        "Pending",
        "Port 31000 on gpu-01 is held by another run; waiting for it. "
        "Take MASTER_PORT out of `env` to be given a free one.",
    )

    first.end(0, Exit(kind="stopped"))
    cluster_place(house.cluster.id)
    assert second.fresh.state == "Starting"


def test_a_machine_without_a_port_left(house):
    factories.machine_make(house, "gpu-01")
    Machine.objects.update(busy_ports=list(range(29500, 29600)))
    gang = Gang(factories.run_pending(house, "a", document=small("a")))
    cluster_place(house.cluster.id)

    assert look(gang) == ("Pending", "All rendezvous ports on gpu-01 are in use; waiting for one")


# --- Runs that come again ----------------------------------------------------------------------------


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


def test_apply_rolls_back_everything_when_one_row_is_refused(house, machines, monkeypatch):
    """A GPU that something else took after all: the constraint speaks, nothing is half placed."""
    gang = submitted(house)

    def refuse(*_arguments, **_options):
        raise apply.IntegrityError("gpu_held_once")

    monkeypatch.setattr(apply, "machines_revise", refuse)
    cluster_pass(house.cluster.id)
    assert (gang.fresh.state, gang.fresh.attempt_no) == ("Pending", 0)
    assert Assignment.objects.count() == 0
    assert MachineLabel.objects.count() == 2
