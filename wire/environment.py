"""The variables of every worker, and what else its place in the run gives it.

The one place where they are made: the agent sets them and the console shows them, both from here.

Of a run whose workers start on their own (`start: Independent`) RANK, WORLD_SIZE and Astraeus's own variables say which
of how many workers this is, so that each can take its part of the work. Nobody meets anybody there: MASTER_ADDR, what
torchrun reads and Slurm's set describe a job of this worker alone, on its one machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from wire.hostlist import compress
from wire.quantities import GIB

# Verdicts of the placement (design: network codes) by what they give the worker.
RDMA_VERDICTS: Final = frozenset({"ib_rack", "ib_fabric", "roce_rack", "roce"})
NVLINK_DOMAIN: Final = "nvlink_domain"
"""The verdict, and the name of the place that `keep_within` may name."""
ETHERNET_VERDICT: Final = "ethernet"
RDMA_INTERCONNECTS: Final = frozenset({"rdma", "infiniband"})

RENDEZVOUS_PORTS: Final = range(29500, 29600)
"""Those that a leader may get: the first that is free on its machine."""
MAX_PORT: Final = 65535
SOCKET_INTERFACES: Final = "^lo,docker,virbr,veth,cni,wg"

# Which variables say the same as another one, and so follow it when the user sets that one and not them.
# Slurm's are not among them: they describe the machines that were allocated, and a set in which the number of
# nodes and the list of nodes disagree is worse than none.
FOLLOWERS: Final[Mapping[str, tuple[str, ...]]] = {
    "RANK": ("ASTRAEUS_REPLICA_INDEX", "PET_NODE_RANK"),
    "WORLD_SIZE": ("ASTRAEUS_WORLD_SIZE", "PET_NNODES"),
    "MASTER_ADDR": ("ASTRAEUS_LEADER_ADDRESS", "PET_MASTER_ADDR"),
    "MASTER_PORT": ("PET_MASTER_PORT",),
    "ASTRAEUS_GPU_COUNT": ("PET_NPROC_PER_NODE",),
    "NCCL_ASYNC_ERROR_HANDLING": ("TORCH_NCCL_ASYNC_ERROR_HANDLING",),
}


_OF_NODES: Final = frozenset({"PET_NODE_RANK", "PET_NNODES"})
"""They say something else than RANK and WORLD_SIZE where workers start on their own."""


@dataclass(frozen=True)
class WorkerFacts:
    """What is known about a worker when its attempt is placed."""

    run: str
    worker: str
    workspace: str
    cluster: str
    attempt: int
    """From 1 on."""
    job_id: int
    """A number of the run's own: Slurm's job ids are numbers, and programs count with them."""
    rank: int
    world_size: int
    group_name: str
    """"" for a run of one unnamed group."""
    group_rank: int
    group_size: int
    gpu_count: int
    """GPUs of this worker; 0 on a worker without."""
    cpus: int
    """Cores of this worker."""
    machine: str
    """The machine's name in the console."""
    hostnames: tuple[str, ...]
    """The machines of all workers in rank order; its own where it starts on its own."""
    leader_address: str
    leader_worker: str
    master_port: int
    network: str
    """The verdict's code, such as `ib_fabric`."""
    interconnect: str = "any"
    """What the worker's group asked for."""
    ib_ports: tuple[str, ...] = ()
    """RDMA ports that NCCL may use, `mlx5_0:1`; empty where there are none."""
    restarts: int = 0
    user_env: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False
    """It starts on its own (`start: Independent`): the others of its run are no peers of it."""

    @property
    def node_rank(self) -> int:
        """Among the machines that meet."""
        return 0 if self.alone else self.rank

    @property
    def nodes(self) -> int:
        """Machines that meet."""
        return len(self.hostnames)

    def __post_init__(self) -> None:
        meet = 1 if self.alone else self.world_size
        if not 0 <= self.rank < self.world_size or self.nodes != meet:
            raise ValueError(
                f"rank {self.rank} of {self.world_size} workers on {len(self.hostnames)} machines is "
                f"impossible"
            )


def worker_environment(facts: WorkerFacts) -> dict[str, str]:
    """Every variable of the worker: ours, those that follow the user's, and the user's."""
    ours = {
        **_rendezvous(facts),
        **_astraeus(facts),
        **_torchelastic(facts),
        **_slurm(facts),
        **_nccl(facts),
    }
    return ours | _following(facts, ours) | dict(facts.user_env)


def _following(facts: WorkerFacts, ours: Mapping[str, str]) -> dict[str, str]:
    user_env = facts.user_env
    apart = _OF_NODES if facts.alone else frozenset()
    return {
        follower: user_env[name]
        for name, followers in FOLLOWERS.items()
        if name in user_env
        for follower in followers
        if follower in ours and follower not in apart
    }


def _rendezvous(facts: WorkerFacts) -> dict[str, str]:
    return {
        "RANK": str(facts.rank),
        "WORLD_SIZE": str(facts.world_size),
        "MASTER_ADDR": facts.leader_address,
        "MASTER_PORT": str(facts.master_port),
    }


def _astraeus(facts: WorkerFacts) -> dict[str, str]:
    return {
        "ASTRAEUS_GPU_COUNT": str(facts.gpu_count),
        "ASTRAEUS_WORLD_SIZE": str(facts.world_size),
        "ASTRAEUS_REPLICA_INDEX": str(facts.rank),
        "ASTRAEUS_LEADER_ADDRESS": facts.leader_address,
        "ASTRAEUS_LEADER_TASK_NAME": facts.leader_worker,
        "ASTRAEUS_TASK_NAME": facts.worker,
        "ASTRAEUS_NODE_NAME": facts.machine,
        "ASTRAEUS_JOB_NAME": facts.run,
        "ASTRAEUS_WORKSPACE": facts.workspace,
        "ASTRAEUS_CLUSTER": facts.cluster,
        "ASTRAEUS_ATTEMPT": str(facts.attempt),
        "ASTRAEUS_NETWORK": facts.network,
        "ASTRAEUS_GROUP_NAME": facts.group_name,
        "ASTRAEUS_GROUP_RANK": str(facts.group_rank),
        "ASTRAEUS_GROUP_SIZE": str(facts.group_size),
    }


def _torchelastic(facts: WorkerFacts) -> dict[str, str]:
    """What a bare `torchrun script.py` reads in place of its options. One process where there is no GPU."""
    return {
        "PET_NNODES": str(facts.nodes),
        "PET_NPROC_PER_NODE": str(facts.gpu_count or 1),
        "PET_NODE_RANK": str(facts.node_rank),
        "PET_MASTER_ADDR": facts.leader_address,
        "PET_MASTER_PORT": str(facts.master_port),
    }


def _slurm(facts: WorkerFacts) -> dict[str, str]:
    """Slurm's set for one task a node. Half of it makes libraries guess wrongly, so all of it is there."""
    size, nodes = str(facts.nodes), compress(facts.hostnames)
    gpus = {"SLURM_GPUS_ON_NODE": str(facts.gpu_count)} if facts.gpu_count else {}
    return {
        "SLURM_PROCID": str(facts.node_rank),
        "SLURM_NODEID": str(facts.node_rank),
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": size,
        "SLURM_JOB_NUM_NODES": size,
        "SLURM_NTASKS": size,
        "SLURM_NPROCS": size,
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_TASKS_PER_NODE": "1" if facts.nodes == 1 else f"1(x{size})",
        "SLURM_JOB_NAME": facts.run,
        "SLURM_JOB_ID": str(facts.job_id),
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURMD_NODENAME": facts.hostnames[facts.node_rank],
        "SLURM_CPUS_ON_NODE": str(facts.cpus),
        **gpus,
        "SLURM_RESTART_COUNT": str(facts.restarts),
        "SLURM_LAUNCH_NODE_IPADDR": facts.leader_address,
    }


def _nccl(facts: WorkerFacts) -> dict[str, str]:
    settings: dict[str, str] = {}
    if facts.gpu_count:
        settings |= {
            "NCCL_DEBUG": "WARN",
            # PyTorch renamed it; versions in use read one or the other.
            "NCCL_ASYNC_ERROR_HANDLING": "1",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            "NCCL_SOCKET_IFNAME": SOCKET_INTERFACES,
        }
    if needs_rdma_devices(facts.network, facts.interconnect) and facts.ib_ports:
        # One `=` at the head makes the whole list exact; repeated inside it would be part of a name.
        settings["NCCL_IB_HCA"] = "=" + ",".join(facts.ib_ports)
    if ETHERNET_VERDICT in (facts.network, facts.interconnect):
        settings["NCCL_IB_DISABLE"] = "1"
    return settings


def needs_rdma_devices(verdict: str, asked: str) -> bool:
    """True: the worker gets `/dev/infiniband/*`, `IPC_LOCK` and NCCL_IB_HCA, placed there or asked for."""
    return verdict in RDMA_VERDICTS or asked in RDMA_INTERCONNECTS


def needs_imex(verdict: str, keep_within: str | None, machines: int) -> bool:
    """True: the worker gets IMEX channel 0: several machines in one NVLink domain, placed there or kept within it.

    A run that is kept within one and asks for InfiniBand as well has InfiniBand's verdict.
    """
    return NVLINK_DOMAIN in (verdict, keep_within) and machines > 1


def shm_bytes(memory_bytes: int) -> int:
    """Size of `/dev/shm`: half the worker's memory limit, between 1 GiB and 64 GiB."""
    return max(GIB, min(memory_bytes // 2, 64 * GIB))


def parse_port(text: str) -> int | None:
    """The port that `text` names in plain digits; None when it names none."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_PORT))):
        return None
    return int(text) if 1 <= int(text) <= MAX_PORT else None


def wanted_master_port(env: Mapping[str, str]) -> int | None:
    """The rendezvous port that the leader's `env` fixes; None: Astraeus chooses, from 29500 on."""
    return parse_port(env.get("MASTER_PORT", ""))
