"""Gangs of every shape for the tests of what others read from workers' variables."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.e2e.documents import rendezvous_port
from wire.environment import WorkerFacts, worker_environment

PROCESSES = 2
"""GPUs of a worker, thus processes that torchrun starts."""
QUIET = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
"""Workers of tests share this host: they compute with little and meet on loopback."""

HOSTLISTS: Mapping[str, Sequence[str]] = {
    "one with a number": ["gpu-01"],
    "one without": ["login"],
    "in a row": ["gpu-01", "gpu-02", "gpu-03"],
    "gaps": ["gpu-01", "gpu-02", "gpu-04", "gpu-07", "gpu-08"],
    "wider with ten": ["node9", "node10", "node11"],
    "wider with a hundred": ["n98", "n99", "n100"],
    "of one width": ["gpu-098", "gpu-099", "gpu-100"],
    "of different widths": ["gpu-1", "gpu-01", "gpu-001"],
    "backwards": ["gpu-03", "gpu-02", "gpu-01"],
    "ranks that come and go": ["gpu-03", "gpu-01", "gpu-02", "gpu-04"],
    "numbers inside": ["r1n01", "r1n02", "r2n01"],
    "with and without": ["login", "gpu-01", "gpu-02", "alpha"],
    "several names": ["dgx-1", "dgx-2", "hgx-1", "hgx-2", "gb-7"],
    "sixteen": [f"node{number}" for number in range(92, 108)],
}


class Shape(NamedTuple):
    """Groups of workers and the machines of them all, in rank order."""

    groups: Mapping[str, int]
    machines: Sequence[str]
    gpus: int = PROCESSES
    alone: bool = False

    @property
    def meet(self) -> int:
        """How many workers one rendezvous has."""
        return 1 if self.alone else len(self.machines)


SHAPES: Mapping[str, Shape] = {
    "one": Shape({"": 1}, ["login"]),
    "two": Shape({"": 2}, ["gpu-01", "gpu-02"]),
    "three": Shape({"": 3}, ["dgx-9", "dgx-10", "alpha"]),
    "sixteen": Shape({"": 16}, HOSTLISTS["sixteen"]),
    "groups": Shape({"chief": 1, "actor": 3}, ["cpu-1", "gpu-08", "gpu-09", "gpu-11"]),
    "without GPUs": Shape({"": 2}, ["cpu-1", "cpu-2"], gpus=0),
    "independent": Shape({"": 3}, ["gpu-07", "gpu-07", "login"], alone=True),
}


def workers_of(shape: Shape) -> list[tuple[str, str, int]]:
    """(name, group, rank in the group) in rank order."""
    return [
        (f"ddp-{group}-{index}" if group else f"ddp-{index}", group, index)
        for group, size in shape.groups.items()
        for index in range(size)
    ]


def environments(shape: Shape) -> list[dict[str, str]]:
    """Of all its workers, in rank order."""
    port = int(rendezvous_port())
    workers = workers_of(shape)
    return [
        worker_environment(
            WorkerFacts(
                run="ddp",
                worker=worker,
                workspace="vision",
                cluster="main",
                attempt=1,
                job_id=4711,
                rank=rank,
                world_size=len(workers),
                group_name=group,
                group_rank=index,
                group_size=shape.groups[group],
                gpu_count=shape.gpus,
                cpus=24,
                machine=shape.machines[rank],
                hostnames=(shape.machines[rank],) if shape.alone else tuple(shape.machines),
                leader_address="127.0.0.1",
                leader_worker=worker if shape.alone else workers[0][0],
                master_port=port,
                network="one_machine" if shape.meet == 1 else "ib_fabric",
                user_env=QUIET,
                alone=shape.alone,
            )
        )
        for rank, (worker, group, index) in enumerate(workers)
    ]
